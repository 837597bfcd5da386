/*
 * Files that the boot has open for writing. Under php-fpm the boot of each request opens them, so a request begins with
 * what a boot of its own would find and leave there:
 *
 *   What the boot opened by a name for writing is opened again as the boot opened it, whenever what is there is not
 *   what this process left; what the boot wrote into it since is written again.
 *
 * How the boot opened a file, and what it wrote, is noted when it does so (rewind/openings.c). At the beginning of a
 * request there are two steps:
 *
 *   boot_files_look()   One stat() by each name. Where it tells of another file than the one that is open, the opening
 *                       is played again, and the new file takes the place of the old one under all its numbers. What
 *                       each boot makes anew is made anew: what the boot had removed before it opened it, what may not
 *                       have been there ("x"), temporary files. Where the boot holds locks, before they are taken only
 *                       what is locked itself is looked at: the other files belong to who has the locks.
 *   boot_files_renew()  When locks are taken: those other files are looked at. A file that each boot makes anew, or
 *                       empties, holds again what the boot and the warm-up requests left in it, and nothing else.
 *                       Another one, of which the end of what the boot wrote is missing, since it was cut or is a new
 *                       one, gets that once more. Who stood at the end stands at the end.
 *
 * What tells that nothing was written is the time of the last change; it is believed when it is some seconds old.
 * Temporary files (tmpfile(), php://temp that has outgrown the memory, SQLite's) are of the first kind, with a name or
 * without.
 *
 * Where that cannot be done: a log goes on in the old file, and the next request tries again. Of another one the worker
 * is replaced by one that boots by itself, after the request, or at once if the old file holds what visitors wrote.
 * That is not held against the application. A file whose bytes are more than are kept, or not known for sure, is left
 * alone, and who writes to it costs the worker.
 *
 * PHP removes tmpfile()s when it closes them, which a worker that is killed does not. The zygote removes those, of
 * which workers tell it by memory that they share (16 each, with names below 256 bytes); it believes of that only what
 * stat() confirms.
 *
 * Promised: nobody finds what another visitor wrote to a file that each boot makes anew, and what somebody has taken
 * stays what it is. Left alone are files that PHP code has not opened (but for nameless ones), memory (memfd), and what
 * the server's own output goes to. What holds what it should is only read. All notes are kept memory: a rewind leaves
 * them alone.
 */
#include "engine.h"
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Bytes of all files together that are put back. */
#define MOST_KEPT (8l << 20)
/* Bytes that are compared at once. */
#define PART (16l << 10)
/* The kernel's time of a change may be so much behind, in ns; and so old one is believed to be the last, in seconds. */
#define TICK 20000000l
#define OLD 3
#define MOST_FILES 2048

static struct boot_file {
	struct rewind_opening *opened;
	int fd;         /* one of its numbers */
	int own;        /* a second descriptor, to read and to write at any place; -1: none */
	bool temporary; /* nobody else has it */
	bool known;     /* what the boot left, or wrote, can be written again */
	bool said;      /* that it cannot be opened */
	mode_t mode;
	nlink_t links;
	struct stat there; /* what was found at the beginning of this request */
	struct stat left;  /* when it held what it should, at the time of `looked`; 0: never */
	time_t looked;
} * files;
static size_t file_count;

/* Where streams stand in files that may be cut, or grow. */
static struct place {
	size_t file;
	int fd;
	php_stream *stream;
	off_t at;
	bool end;    /* at the end */
	bool beyond; /* it stood behind the end */
} * places;
static size_t place_count;

/* In kept memory. */
static struct {
	bool replaced; /* one is not what the boot would have */
} * state;

/* What the zygote removes after a worker's death. */
#define NAMES_TOLD 16
struct told {
	struct {
		uint64_t device, inode;
		char name[256]; /* empty: none */
	} file[NAMES_TOLD];
};
/* By number of worker, shared by all; NULL: there is no memory for it. */
static struct told *told;

static bool leads_to(const char *name, const struct stat *st)
{
	struct stat now;
	return stat(name, &now) == 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

/* php and what is random, for its owner only, and nowhere else. */
static bool has_temporary_name(const char *path, const struct stat *st)
{
	const char *name = strrchr(path, '/');
	return name != NULL && strncmp(name, "/php", 4) == 0 && strlen(name + 1) == ENGINE_TEMPORARY_NAME &&
	       (st->st_mode & 0777) == 0600 && st->st_nlink == 1 && leads_to(path, st);
}

/* As php_stdio_stream_data of main/streams/plain_wrapper.c begins (PHP 7.4 and later). */
struct plain_file {
	FILE *file;
	int fd;
	unsigned flags;
	int lock_flag;
	const zend_string *temporary_name;
};

/* PHP's tmpfile() has a name until it is closed. What is opened by a name that tempnam() made looks like one, but PHP
 * does not remove it. */
bool boot_files_is_temporary(const php_stream *stream)
{
	const struct plain_file *file = stream->abstract;
	return file->temporary_name != NULL;
}

static bool is_temporary(const php_stream *stream, int fd)
{
	const struct plain_file *file = stream->abstract;
	return file->fd == fd && boot_files_is_temporary(stream);
}

/* A second descriptor, also where the first was opened for writing only, or for appending. It stays open, and is no
 * duplicate of one that does not: closing any would give up the process' record locks on the file. -1: that is not
 * allowed. */
static int open_again(int fd)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* A number of our own for this file, which it had in the last note; -1: it has none. */
static int own_of(const struct boot_file *before, size_t count, const struct rewind_opening *opened)
{
	for (size_t i = 0; i < count; i++) {
		if (before[i].opened == opened) {
			return before[i].own;
		}
	}
	return -1;
}

static bool is_own(const struct boot_file *of, size_t count, int fd)
{
	for (size_t i = 0; i < count; i++) {
		if (of[i].own == fd) {
			return true;
		}
	}
	return false;
}

/* Whether it holds what the boot left in it, and nothing else. */
static bool holds(const struct boot_file *file)
{
	struct stat now;
	off_t size = (off_t)file->opened->size;
	if (fstat(file->own, &now) != 0 || now.st_size != size) {
		return false;
	}
	uint8_t part[PART];
	for (off_t at = 0; at < size; at += PART) {
		size_t len = (size_t)MIN(PART, size - at);
		if (pread(file->own, part, len, at) != (ssize_t)len || memcmp(part, file->opened->bytes + at, len) != 0) {
			return false;
		}
	}
	return true;
}

/* Those of the last time, while they are noted again. */
static struct boot_file *noted_before;
static size_t noted_count;
static long bytes_kept;

/* Of a file that each boot makes anew. Of one with a name what this process wrote is known: others may write to it as
 * well. Where it may have written more than that it counts if nothing else is there. */
static bool know(const struct boot_file *file, const struct stat *st)
{
	struct rewind_opening *opened = file->opened;
	if (file->own < 0 || opened->perhaps ||
	    (file->temporary && !rewind_opening_read(opened, file->own, (size_t)st->st_size)) ||
	    opened->size > REWIND_MOST_WRITTEN || (opened->size > 0 && opened->bytes == NULL)) {
		return false;
	}
	bool sure = file->temporary || (!opened->unseen && !opened->lasts);
	bytes_kept += (long)opened->size;
	return (sure || holds(file)) && bytes_kept <= MOST_KEPT;
}

static struct boot_file *find(const struct rewind_opening *opened)
{
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].opened == opened) {
			return &files[i];
		}
	}
	return NULL;
}

static struct boot_file *keep(int fd, const struct stat *st, struct rewind_opening *opened, bool temporary)
{
	struct boot_file *file = find(opened);
	if (file != NULL || file_count == MOST_FILES) {
		return file;
	}
	file = &files[file_count++];
	*file = (struct boot_file){
	    .opened = opened,
	    .fd = fd,
	    .own = -1,
	    .temporary = temporary,
	    .mode = st->st_mode & 07777,
	    .links = st->st_nlink,
	    .there = *st,
	    .left = *st,
	};
	opened->kept = true;
	if (opened->anew || temporary) {
		file->own = own_of(noted_before, noted_count, opened);
		file->own = file->own >= 0 ? file->own : open_again(fd);
		rewind_positionless(file->own, true);
		file->known = know(file, st);
	} else {
		file->known = !opened->unseen && opened->size <= REWIND_MOST_WRITTEN;
	}
	return file;
}

/* Those that nobody has opened by a name, or whose names the boot itself has removed. */
static bool look_at_nameless(int fd, void *to)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (zygote_is_own(fd) || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (flags & O_ACCMODE) == O_RDONLY ||
	    (flags & O_PATH) || rewind_is_memfd(fd) || rewind_is_output(&st) || is_own(noted_before, noted_count, fd) ||
	    is_own(files, file_count, fd)) {
		return true;
	}
	struct rewind_opening *opened = rewind_opening_of(&st);
	if (st.st_nlink == 0 || (opened != NULL && opened->nameless)) {
		opened = opened != NULL ? opened : rewind_opening_make(fd, &st);
		if (opened != NULL && find(opened) == NULL) {
			opened->nameless = true;
			keep(fd, &st, opened, true);
		}
	}
	return true;
}

/* How the application spells it: PHP resolves links in names that are relative, or URLs. */
static void note_spelling(struct rewind_opening *opened, const char *path, const struct stat *st)
{
	char directory[PATH_MAX], name[2 * PATH_MAX];
	path += strncasecmp(path, "file://", 7) == 0 ? 7 : 0;
	if (path[0] != '/') {
		snprintf(name, sizeof name, "%s/%s", getcwd(directory, sizeof directory) != NULL ? directory : "", path);
		path = name;
	}
	if (leads_to(path, st)) {
		rewind_opening_name(opened, path);
	}
}

/* Where a stream stands that neither only appends nor is put back as a whole. */
static void note_place(const struct boot_file *file, int fd, php_stream *stream, const struct stat *st)
{
	const struct rewind_opening *opened = file->opened;
	off_t at = lseek(fd, 0, SEEK_CUR);
	/* Where one stands that only appends means nothing. */
	if (opened->anew || (fcntl(fd, F_GETFL) & (O_APPEND | O_ACCMODE)) == (O_APPEND | O_WRONLY) || at < 0) {
		return;
	}
	bool nothing_held = stream->readpos == stream->writepos;
	bool end = nothing_held && (opened->end == at || (opened->size == 0 && at > 0 && at == st->st_size));
	places = perealloc(places, (place_count + 1) * sizeof *places, 1);
	places[place_count++] = (struct place){.file = (size_t)(file - files),
	                                       .fd = fd,
	                                       /* After an append PHP's own position is another one, and stays. */
	                                       .stream = nothing_held && stream->position == at ? stream : NULL,
	                                       .at = at,
	                                       .end = end,
	                                       .beyond = at > st->st_size};
}

static void look_at_stream(php_stream *stream)
{
	int fd;
	struct stat st;
	if (stream->ops != &php_stream_stdio_ops || stream->wrapper != &php_plain_files_wrapper ||
	    php_stream_cast(stream, PHP_STREAM_AS_FD_FOR_SELECT | PHP_STREAM_CAST_INTERNAL, (void *)&fd, 0) != SUCCESS ||
	    fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY ||
	    rewind_is_output(&st)) {
		return;
	}
	struct rewind_opening *opened = rewind_opening_of(&st);
	if (is_temporary(stream, fd)) {
		const struct plain_file *plain = stream->abstract;
		const char *name = ZSTR_VAL(plain->temporary_name);
		opened = rewind_opening_make(fd, &st);
		if (opened != NULL && find(opened) == NULL) {
			opened->flags = O_RDWR | O_CREAT | O_EXCL;
			opened->removed = true; /* a name drawn by chance, that nobody else has */
			opened->nameless = !leads_to(name, &st) || strlen(name) >= PATH_MAX;
			strcpy(opened->name, opened->nameless ? "" : name);
			keep(fd, &st, opened, true);
		}
	} else if (opened != NULL && !opened->nameless) {
		if (stream->orig_path != NULL) {
			note_spelling(opened, stream->orig_path, &st);
		}
		const struct boot_file *file = keep(fd, &st, opened, false);
		if (file != NULL) {
			note_place(file, fd, stream, &st);
		}
	}
}

static void look_at_streams(void)
{
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		if (resource->type == php_file_le_stream() && resource->ptr != NULL) {
			look_at_stream(resource->ptr);
		}
	}
	ZEND_HASH_FOREACH_END();
}

/* Of a worker: for the zygote. */
static void tell(void)
{
	struct told *own = told == NULL || !zygote_is_worker() ? NULL : &told[hy_ring_worker()];
	size_t count = 0;
	for (size_t i = 0; own != NULL && i < file_count && count < NAMES_TOLD; i++) {
		const struct rewind_opening *opened = files[i].opened;
		if (files[i].temporary && !opened->nameless && strlen(opened->name) < sizeof own->file[0].name) {
			own->file[count].device = opened->device;
			own->file[count].inode = opened->inode;
			strcpy(own->file[count++].name, opened->name);
		}
	}
}

/* Files that nobody has any more are closed. */
static void forget_before(void)
{
	for (size_t i = 0; i < noted_count; i++) {
		int own = noted_before[i].own;
		if (own >= 0 && !is_own(files, file_count, own)) {
			rewind_positionless(own, false);
			close(own);
		}
		noted_before[i].opened->kept = find(noted_before[i].opened) != NULL;
	}
}

void boot_files_note(void)
{
	/* The note of the last time, and this one's. */
	static struct boot_file *rooms[2];
	static unsigned notes;
	if (state == NULL) {
		state = rewind_keep(sizeof *state);
		rooms[0] = rewind_keep(MOST_FILES * sizeof *files);
		rooms[1] = rewind_keep(MOST_FILES * sizeof *files);
		if (state == NULL || rooms[0] == NULL || rooms[1] == NULL) {
			zygote_failed("no memory for notes of the boot's files");
		}
	}
	noted_before = files;
	noted_count = file_count;
	files = rooms[++notes & 1];
	file_count = place_count = 0;
	bytes_kept = 0;
	rewind_watch_no_file();
	look_at_streams();
	if (!zygote_each_fd(look_at_nameless, NULL)) {
		zygote_failed("no descriptor is left to look at the boot's files; raise the limit of open files (LimitNOFILE)");
	}
	forget_before();
	bool large = false;
	for (size_t i = 0; i < file_count; i++) {
		if (!files[i].known && (files[i].temporary || files[i].opened->anew)) {
			large = true;
			(void)rewind_watch_file(&files[i].left); /* of one that is not watched all is doubted */
		}
	}
	if (large) {
		/* A change that the kernel dates back to before now would not be seen. */
		nanosleep(&(struct timespec){.tv_nsec = TICK}, NULL);
	}
	tell();
}

void boot_files_share(void)
{
	size_t size = hy_ring_max_workers() * sizeof *told;
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	told = at == MAP_FAILED ? NULL : at;
}

void boot_files_bury(uint32_t worker)
{
	for (size_t i = 0; told != NULL && i < NAMES_TOLD; i++) {
		char name[sizeof told->file[0].name];
		struct stat st;
		memcpy(name, told[worker].file[i].name, sizeof name);
		name[sizeof name - 1] = '\0';
		told[worker].file[i].name[0] = '\0';
		if (name[0] == '/' && lstat(name, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
		    st.st_dev == told[worker].file[i].device && st.st_ino == told[worker].file[i].inode &&
		    has_temporary_name(name, &st)) {
			unlink(name);
		}
	}
}

struct in_place {
	const struct boot_file *file;
	char path[64];
	size_t count; /* so many descriptors */
	int error;
};

static bool put_in_place(int fd, void *to)
{
	struct in_place *in = to;
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (!zygote_is_own(fd) && flags >= 0 && !(flags & O_PATH) && fstat(fd, &st) == 0 &&
	    st.st_dev == in->file->opened->device && st.st_ino == in->file->opened->inode) {
		int error = rewind_replace_file(fd, in->path, flags & (O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC));
		in->error = in->error != 0 ? in->error : error;
		in->count += error == 0;
	}
	return in->error == 0;
}

/* Opens again what now has the name. 0, or the errno of what failed: then nothing has changed, or, with `halfway`, some
 * of it. */
static int play(struct boot_file *file, bool *halfway)
{
	*halfway = false;
	if ((file->opened->anew || file->temporary) && !file->known) {
		return EFBIG;
	}
	int again = rewind_opening_again(file->opened, file->mode);
	struct in_place in = {.file = file};
	if (again < 0) {
		return -again;
	}
	if (fstat(again, &file->there) != 0) {
		in.error = errno;
	} else {
		snprintf(in.path, sizeof in.path, "/proc/self/fd/%d", again);
		in.error = zygote_each_fd(put_in_place, &in) ? in.error : EMFILE;
		*halfway = in.error != 0 && in.count > 0;
	}
	if (in.error == 0) {
		file->opened->device = file->there.st_dev;
		file->opened->inode = file->there.st_ino;
		file->links = file->there.st_nlink;
		file->left = (struct stat){0};
		file->said = false;
	}
	close(again);
	return in.error;
}

/* What is there is what this process has open; and nobody has given a file that each boot makes anew another name. */
static bool is_there(struct boot_file *file)
{
	const struct rewind_opening *opened = file->opened;
	if (opened->nameless) {
		return fstat(file->own >= 0 ? file->own : file->fd, &file->there) == 0;
	}
	bool made = opened->removed || (opened->flags & O_EXCL);
	return stat(opened->name, &file->there) == 0 && file->there.st_dev == opened->device &&
	       file->there.st_ino == opened->inode && (!made || file->there.st_nlink <= file->links);
}

static void cannot_be_opened(struct boot_file *file, int error, bool halfway)
{
	bool visitors = file->known && (file->opened->anew || file->temporary);
	bool appends = !visitors && (file->opened->flags & O_APPEND);
	if (!file->said) {
		log_format(HY_LOG_ERROR
		           "The file %s, which the boot opened, is another one by now, and cannot be opened as the boot "
		           "opened it: %s. %s",
		           file->opened->name,
		           error == EFBIG ? "what the boot wrote to it is too much to be kept, or not known" : strerror(error),
		           visitors || halfway ? "This worker ends."
		           : appends           ? "What requests write goes to the one before, until it can be opened."
		                               : "This worker is replaced after the request.");
	}
	if (visitors || halfway) {
		_exit(70);
	}
	file->said = true;
	state->replaced |= !appends;
	if (fstat(file->fd, &file->there) != 0) {
		file->there.st_size = 0;
	}
}

static void look_at(struct boot_file *file, bool *played)
{
	bool halfway = false;
	if (!is_there(file)) {
		int error = file->opened->nameless ? errno : play(file, &halfway);
		*played = true;
		if (error != 0) {
			cannot_be_opened(file, error, halfway);
		}
	}
}

void boot_files_look(bool under_locks_later)
{
	bool played = false;
	for (size_t i = 0; i < file_count; i++) {
		if (!under_locks_later || !locks_any() || locks_are_on(files[i].opened)) {
			look_at(&files[i], &played);
		}
	}
	if (played) {
		tell();
	}
}

/* What the locks guard. Who has waited for a lock has it on the file for which he has waited, whatever became of that.
 */
static void look_again(void)
{
	bool played = false;
	for (size_t i = 0; i < file_count; i++) {
		if (!locks_are_on(files[i].opened)) {
			look_at(&files[i], &played);
		} else if (fstat(files[i].fd, &files[i].there) != 0) {
			files[i].there.st_mode = 0;
		}
	}
	if (played) {
		tell();
	}
}

static void cut(const struct boot_file *file, int fd, off_t size)
{
	while (ftruncate(fd, size) != 0) {
		if (errno != EINTR) {
			log_format(HY_LOG_ERROR "A file of the boot (descriptor %d) cannot be cut back to what the boot left in it "
			                        "(%s); this worker ends.",
			           file->fd, strerror(errno));
			_exit(70);
		}
	}
}

/* What of the boot's bytes could be written is what is in the file; the next request tries again. */
static void put_back(const struct boot_file *file)
{
	off_t done = 0, size = (off_t)file->opened->size;
	int error = 0;
	while (done < size && error == 0) {
		ssize_t n = pwrite(file->own, file->opened->bytes + done, (size_t)(size - done), done);
		done += MAX(n, 0);
		error = n > 0 || (n < 0 && errno == EINTR) ? 0 : n == 0 ? ENOSPC : errno;
	}
	cut(file, file->own, done);
	if (error != 0) {
		log_format("A file of the boot (descriptor %d) has %jd of the %jd bytes that the boot left in it: the others "
		           "cannot be written again (%s).",
		           file->fd, (intmax_t)done, (intmax_t)size, strerror(error));
	}
}

static bool is_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_unchanged(const struct stat *now, const struct stat *before)
{
	return now->st_ino == before->st_ino && now->st_dev == before->st_dev && now->st_size == before->st_size &&
	       is_time(now->st_mtim, before->st_mtim) && is_time(now->st_ctim, before->st_ctim);
}

/* One that each boot makes anew, or empties. */
static void renew_whole(struct boot_file *file)
{
	if (!S_ISREG(file->there.st_mode) || (!file->opened->lasts && is_unchanged(&file->there, &file->left) &&
	                                      file->left.st_ctim.tv_sec + OLD < file->looked)) {
		return;
	}
	/* What is written after this is not older. */
	file->looked = time(NULL);
	if (fstat(file->own, &file->left) != 0) {
		file->left = (struct stat){0};
	}
	if (!holds(file)) {
		put_back(file);
		file->left = (struct stat){0};
	}
}

/* Another one, which was cut, or is a new one: what the boot wrote there is written again. */
static void renew_part(struct boot_file *file)
{
	struct rewind_opening *opened = file->opened;
	off_t end = opened->appended ? 1 : (off_t)(opened->start + opened->size), most = (off_t)opened->cut_to;
	if (most > 0 && file->there.st_size > most && S_ISREG(file->there.st_mode)) {
		cut(file, file->fd, most);
		file->there.st_size = most;
	}
	if (opened->size == 0 || file->there.st_size >= end || !S_ISREG(file->there.st_mode)) {
		return;
	}
	off_t start = opened->appended ? file->there.st_size : (off_t)opened->start;
	size_t done = 0;
	int error = file->known ? 0 : EFBIG;
	while (done < opened->size && error == 0) {
		ssize_t n = pwrite(file->fd, opened->bytes + done, opened->size - done, start + (off_t)done);
		done += (size_t)MAX(n, 0);
		error = n > 0 || (n < 0 && errno == EINTR) ? 0 : n == 0 ? ENOSPC : errno;
	}
	file->there.st_size = MAX(file->there.st_size, start + (off_t)done);
	if (error != 0 && !file->said) {
		file->said = true;
		log_format("What the boot wrote to the file %s is not in it any more, and cannot be written again: %s.",
		           opened->name, error == EFBIG ? "it is too much to be kept, or not known" : strerror(error));
	}
	state->replaced |= error == EFBIG && !opened->appended;
}

void boot_files_renew(void)
{
	if (locks_any()) {
		look_again();
	}
	for (size_t i = 0; i < file_count; i++) {
		struct boot_file *file = &files[i];
		bool whole = file->opened->anew || file->temporary;
		if (whole && file->known) {
			renew_whole(file);
		} else if (!whole) {
			renew_part(file);
		}
	}
	for (size_t i = 0; i < place_count; i++) {
		const struct place *place = &places[i];
		const struct stat *there = &files[place->file].there;
		bool cut = place->at > there->st_size && !place->beyond;
		if (S_ISREG(there->st_mode) && (cut || (place->end && place->at < there->st_size))) {
			lseek(place->fd, there->st_size, SEEK_SET);
			/* A worker that has just started notes its places after this. */
			files[place->file].opened->end = place->end ? there->st_size : files[place->file].opened->end;
			if (place->stream != NULL) {
				place->stream->position = there->st_size;
			}
		}
	}
}

/* One that is not put back. Of a file that other workers have as well their writes do not count. */
static bool was_written(const struct boot_file *file)
{
	struct stat now;
	if (rewind_was_written(&file->left)) {
		return true;
	}
	return file->temporary &&
	       (fstat(file->own >= 0 ? file->own : file->fd, &now) != 0 || !is_unchanged(&now, &file->left));
}

bool boot_files_written(void)
{
	for (size_t i = 0; i < file_count; i++) {
		const struct boot_file *file = &files[i];
		if (!file->known && (file->temporary || file->opened->anew) && was_written(file)) {
			return true;
		}
	}
	return false;
}

bool boot_files_replaced(void)
{
	return state != NULL && state->replaced;
}

void boot_files_remove(void)
{
	for (size_t i = 0; i < file_count; i++) {
		const struct rewind_opening *opened = files[i].opened;
		struct stat st;
		if (files[i].temporary && !opened->nameless && lstat(opened->name, &st) == 0 && st.st_dev == opened->device &&
		    st.st_ino == opened->inode) {
			unlink(opened->name);
		}
	}
}
