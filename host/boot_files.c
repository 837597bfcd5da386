/*
 * Files that the boot has open for writing. Under php-fpm the boot of each request opens them, so a request begins with
 * what a boot of its own would find:
 *
 *   LOG        opened to append: the file that has the name now. Logs are rotated.
 *   TEMPORARY  nobody else has it (tmpfile(), php://temp that has outgrown the memory, SQLite's, a file whose name was
 *              removed): it holds what the boot and the warm-up requests left in it, and nothing else.
 *
 * Of any other the boot of each request would do something with what it finds then: empty it, read it, write it anew.
 * What exactly, and what of it was meant for the next visitor, nobody but the application knows. So such a boot is not
 * rewound: see boot_files_left().
 *
 * At the beginning of a request boot_files_look() asks once by each name, and opens again what is another file by now;
 * that takes the place of the old one under all its numbers. Logs that are locked are looked at before the request
 * takes its locks, and the others afterwards, for until then they belong to who had the locks.
 *
 * What tells that nothing was written to a temporary file is the time of the last change; it is believed when it is
 * some seconds old. One of which the bytes are too many to be kept is left alone, and who writes to it costs the
 * worker.
 *
 * Where a log cannot be opened it goes on in the old file, and the next request tries again. Where a temporary file
 * cannot be put back the worker ends; where somebody has removed one whose bytes are not kept, after the request.
 *
 * PHP removes tmpfile()s when it closes them, which a worker that is killed does not. The zygote removes those, of
 * which workers tell it by memory that they share (16 each, with names below 256 bytes); it believes of that only what
 * stat() confirms.
 *
 * Left alone are files that PHP code has not opened (but for nameless ones), memory (memfd), and what the server's own
 * output goes to. All notes are kept memory: a rewind leaves them alone.
 */
#include "engine.h"
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

/* Bytes that are put back: of one file, of all together. */
#define MOST_OF_ONE (256l << 10)
#define MOST_KEPT (8l << 20)
/* Bytes that are compared at once. */
#define PART (16l << 10)
/* The kernel's time of a change may be so much behind, in ns; and so old one is believed to be the last, in seconds. */
#define TICK 20000000l
#define OLD 3
#define MOST_FILES 2048

static struct boot_file {
	enum { LOG, TEMPORARY } kind;
	int fd; /* one of its numbers */
	uint64_t device, inode;
	char *name;                           /* absolute; "": it has none */
	const struct rewind_opening *opening; /* how it was opened; not of a temporary one */
	bool said;                            /* that it cannot be opened */
	mode_t mode;
	/* Of a temporary one: */
	uid_t user;
	gid_t group;
	nlink_t links;
	bool known; /* these bytes were in it */
	const uint8_t *bytes;
	off_t size;
	struct stat left; /* when it held what it should, at the time of `looked`; 0: never */
	time_t looked;
} * files;
static size_t file_count;
static uint8_t *kept;
static off_t kept_size;
static char *names; /* of temporary ones, PATH_MAX for each file */

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

static bool leads_to(const char *name, uint64_t device, uint64_t inode)
{
	struct stat now;
	return stat(name, &now) == 0 && now.st_dev == device && now.st_ino == inode;
}

/* php and what is random, for its owner only, and nowhere else. */
static bool has_temporary_name(const char *path, const struct stat *st)
{
	const char *name = strrchr(path, '/');
	return name != NULL && strncmp(name, "/php", 4) == 0 && strlen(name + 1) == ENGINE_TEMPORARY_NAME &&
	       (st->st_mode & 0777) == 0600 && st->st_nlink == 1 && leads_to(path, st->st_dev, st->st_ino);
}

/* As php_stdio_stream_data of main/streams/plain_wrapper.c begins (PHP 7.4 and later). */
struct plain_file {
	FILE *file;
	int fd;
	unsigned flags; /* the lowest bit: it is a pipe of popen() */
	int lock_flag;
	const zend_string *temporary_name;
};

/* PHP's tmpfile() has a name until it is closed. What is opened by a name that tempnam() made looks like one, but PHP
 * does not remove it. */
static const zend_string *temporary_name(const php_stream *stream)
{
	const struct plain_file *file = stream->abstract;
	return file->temporary_name;
}

bool boot_files_has_buffer(const php_stream *stream)
{
	const struct plain_file *file = stream->abstract;
	return file->file != NULL;
}

bool boot_files_is_program(const php_stream *stream)
{
	const struct plain_file *file = stream->abstract;
	return stream->ops == &php_stream_stdio_ops && file->flags & 1;
}

/* A stream of a file that is written to, and nothing more. */
struct writer {
	php_stream *stream;
	int fd, flags; /* of fcntl(F_GETFL) */
	struct stat st;
};

/* What lies there is no file of anybody's. */
static bool is_kernels(int fd)
{
	struct statfs fs;
	return fstatfs(fd, &fs) == 0 && (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC);
}

static bool is_writer(zend_resource *resource, struct writer *to)
{
	php_stream *stream = resource->ptr;
	if (stream == NULL || resource->type != php_file_le_stream() || stream->ops != &php_stream_stdio_ops) {
		return false;
	}
	/* Not php_stream_cast(): that does not go with filters. */
	const struct plain_file *plain = stream->abstract;
	to->stream = stream;
	to->fd = plain->file != NULL ? fileno(plain->file) : plain->fd;
	return fstat(to->fd, &to->st) == 0 && S_ISREG(to->st.st_mode) && (to->flags = fcntl(to->fd, F_GETFL)) != -1 &&
	       (to->flags & O_ACCMODE) != O_RDONLY && !rewind_is_output(&to->st) && !is_kernels(to->fd);
}

/* Who reads on finds what the file held in the boot, or begins at what is another place by then. */
static bool was_read(const struct writer *writer)
{
	const php_stream *stream = writer->stream;
	return stream->readpos != stream->writepos ||
	       (writer->st.st_size > 0 && lseek(writer->fd, 0, SEEK_CUR) >= writer->st.st_size);
}

/* Nobody can open it: the boot has removed its name, or it never had one. One whose name somebody else has removed is
 * what the next one with that name will be. */
bool boot_files_is_nameless(int fd, const struct stat *st)
{
	const struct rewind_opening *opening = rewind_opening_of(fd);
	return st->st_nlink == 0 && (opening == NULL || opening->moved);
}

/* What a boot does that rotates a log by its size, or makes a cache of many files: the next one has nothing to do. */
static const char EMPTIED[] = "and emptied or replaced it";
static const char UNSURE[] = "and emptied, removed or renamed so many others that this may be one of them";

/* What it is, beyond a log or a temporary file; NULL: nothing. */
static const char *more_than_a_log(const struct writer *writer)
{
	const struct rewind_opening *opening = rewind_opening_of(writer->fd);
	const zend_string *temporary = temporary_name(writer->stream);
	if (boot_files_is_nameless(writer->fd, &writer->st) ||
	    (temporary != NULL && leads_to(ZSTR_VAL(temporary), writer->st.st_dev, writer->st.st_ino))) {
		return NULL;
	}
	return !(writer->flags & O_APPEND) ? "other than to append"
	       : opening == NULL           ? "in a way that Hayate has not seen"
	       : opening->moved            ? "and gave it another name"
	       : opening->emptied          ? EMPTIED
	       : opening->unsure           ? UNSURE
	       : (writer->flags & O_ACCMODE) == O_RDWR && was_read(writer)
	           ? "to read as well, and it was read from, or stands at its end"
	       : opening->otherwise                                            ? "and wrote to it by another descriptor"
	       : opening->touched && writer->stream->writefilters.head != NULL ? "and wrote to it through a filter"
	                                                                       : NULL;
}

const char *boot_files_left(bool *now_and_then)
{
	static char why[512];
	zend_resource *resource;
	struct writer writer;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		const char *more = is_writer(resource, &writer) ? more_than_a_log(&writer) : NULL;
		if (more != NULL) {
			char path[64], target[300];
			snprintf(path, sizeof path, "/proc/self/fd/%d", writer.fd);
			ssize_t n = readlink(path, target, sizeof target - 1);
			target[n > 0 ? n : 0] = '\0';
			snprintf(why, sizeof why, "left the file %s open for writing, %s", target, more);
			if (now_and_then != NULL) {
				*now_and_then = more == EMPTIED || more == UNSURE;
			}
			return why;
		}
	}
	ZEND_HASH_FOREACH_END();
	return NULL;
}

/* One that leads to a log by the same name, or a temporary one. */
static struct boot_file *find(const struct stat *st, const char *name)
{
	for (size_t i = 0; i < file_count; i++) {
		struct boot_file *file = &files[i];
		if (file->device == st->st_dev && file->inode == st->st_ino &&
		    (file->kind == TEMPORARY || name == NULL || strcmp(file->name, name) == 0)) {
			return file;
		}
	}
	return NULL;
}

static struct boot_file *add(int kind, int fd, const struct stat *st)
{
	if (file_count == MOST_FILES) {
		return NULL; /* decline.c sees to it that there are none beyond */
	}
	struct boot_file *file = &files[file_count++];
	*file = (struct boot_file){
	    .kind = kind, .fd = fd, .device = st->st_dev, .inode = st->st_ino, .mode = st->st_mode & 07777};
	return file;
}

/* A second descriptor, also where the first was opened for writing only, or for appending. -1: that is not allowed. */
static int open_again(int fd)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* What is in it now. False: that is too much. */
static bool keep_bytes(struct boot_file *file, off_t size)
{
	int own = size <= MOST_OF_ONE && kept_size + size <= MOST_KEPT ? open_again(file->fd) : -1;
	bool whole = own >= 0 && pread(own, kept + kept_size, (size_t)size, 0) == size;
	if (own >= 0) {
		close(own);
	}
	file->bytes = kept + kept_size;
	file->size = size;
	kept_size += whole ? size : 0;
	return whole;
}

static void note_rights(struct boot_file *file, const struct stat *st)
{
	file->mode = st->st_mode & 07777;
	file->user = st->st_uid;
	file->group = st->st_gid;
	file->links = st->st_nlink;
}

static void note_temporary(int fd, const struct stat *st, const char *name)
{
	struct boot_file *file = find(st, NULL) == NULL ? add(TEMPORARY, fd, st) : NULL;
	if (file != NULL) {
		file->name = names + (size_t)(file - files) * PATH_MAX;
		snprintf(file->name, PATH_MAX, "%s", name);
		note_rights(file, st);
		file->left = *st;
		file->known = keep_bytes(file, st->st_size);
	}
}

/* Those that nobody has opened by a name, or whose names are removed. */
static bool note_nameless(int fd, void *to)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (!zygote_is_own(fd) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && boot_files_is_nameless(fd, &st) &&
	    (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH) && !rewind_is_memfd(fd) && !rewind_is_output(&st)) {
		note_temporary(fd, &st, "");
	}
	return true;
}

/* How the application spells it: PHP resolves links in names that are relative, or URLs. */
static void note_spelling(struct rewind_opening *opening, const char *path)
{
	char directory[PATH_MAX], name[2 * PATH_MAX];
	const char *resource;
	while (strncasecmp(path, "php://filter/", 13) == 0 && (resource = strstr(path, "/resource=")) != NULL) {
		path = resource + strlen("/resource=");
	}
	path += strncasecmp(path, "file://", 7) == 0 ? 7 : 0;
	if (path[0] != '/') {
		snprintf(name, sizeof name, "%s/%s", getcwd(directory, sizeof directory) != NULL ? directory : "", path);
		path = name;
	}
	if (strlen(path) < PATH_MAX && leads_to(path, opening->device, opening->inode)) {
		strcpy(opening->name, path);
	}
}

static void note_writer(const struct writer *writer)
{
	struct rewind_opening *opening = rewind_opening_of(writer->fd);
	const zend_string *temporary = temporary_name(writer->stream);
	if (boot_files_is_nameless(writer->fd, &writer->st)) {
		return; /* see note_nameless() */
	}
	if (temporary != NULL) {
		note_temporary(writer->fd, &writer->st, ZSTR_VAL(temporary));
		return;
	}
	if (opening == NULL) {
		return; /* such a boot is not rewound */
	}
	if (writer->stream->orig_path != NULL) {
		note_spelling(opening, writer->stream->orig_path);
	}
	opening->kept = true;
	struct boot_file *file = find(&writer->st, opening->name) == NULL ? add(LOG, writer->fd, &writer->st) : NULL;
	if (file != NULL) {
		file->name = opening->name;
		file->opening = opening;
	}
}

/* Of a worker: for the zygote. */
static void tell(void)
{
	struct told *own = told == NULL || !zygote_is_worker() ? NULL : &told[hy_ring_worker()];
	size_t count = 0;
	for (size_t i = 0; own != NULL && i < file_count && count < NAMES_TOLD; i++) {
		const struct boot_file *file = &files[i];
		if (file->kind == TEMPORARY && file->name[0] != '\0' && strlen(file->name) < sizeof own->file[0].name) {
			own->file[count].device = file->device;
			own->file[count].inode = file->inode;
			strcpy(own->file[count++].name, file->name);
		}
	}
}

void boot_files_note(void)
{
	zend_resource *resource;
	struct writer writer;
	if (state == NULL) {
		state = rewind_keep(sizeof *state);
		files = rewind_keep(MOST_FILES * sizeof *files);
		names = rewind_keep((size_t)MOST_FILES * PATH_MAX);
		kept = rewind_keep(MOST_KEPT);
		if (state == NULL || files == NULL || names == NULL || kept == NULL) {
			zygote_failed("no memory for notes of the boot's files");
		}
	}
	file_count = 0;
	kept_size = 0;
	rewind_watch_no_file();
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		if (is_writer(resource, &writer)) {
			note_writer(&writer);
		}
	}
	ZEND_HASH_FOREACH_END();
	if (!zygote_each_fd(note_nameless, NULL)) {
		zygote_failed("no descriptor is left to look at the boot's files; raise the limit of open files (LimitNOFILE)");
	}
	bool large = false;
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].kind == TEMPORARY && !files[i].known) {
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
	struct stat there;
	char path[64];
	size_t count; /* so many descriptors */
	int error;
};

static bool put_in_place(int fd, void *to)
{
	struct in_place *in = to;
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	struct rewind_opening *opening = rewind_opening_of(fd);
	bool by_another_name = opening != NULL && in->file->opening != NULL && strcmp(opening->name, in->file->name) != 0;
	if (!zygote_is_own(fd) && flags >= 0 && !(flags & O_PATH) && !by_another_name && fstat(fd, &st) == 0 &&
	    st.st_dev == in->file->device && st.st_ino == in->file->inode) {
		in->error = rewind_replace_file(fd, in->path, flags & (O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC));
		in->count += in->error == 0;
		if (in->error == 0 && opening != NULL) {
			opening->device = in->there.st_dev;
			opening->inode = in->there.st_ino;
		}
	}
	return in->error == 0;
}

/* Its name was drawn by chance: what has it now is the one before, or what a request has made of it. */
static int make_temporary(const struct boot_file *file)
{
	int fd = -EEXIST;
	for (int tries = 0; tries < 16 && fd == -EEXIST; tries++) {
		unlink(file->name);
		fd = rewind_make_file(file->name, file->mode);
	}
	return fd;
}

/* Opens again what now has the name. 0, or the errno of what failed: then nothing has changed, or, with `halfway`, some
 * of it. */
static int open_anew(struct boot_file *file, bool *halfway)
{
	if (file->kind == TEMPORARY && (!file->known || file->name[0] == '\0')) {
		return EFBIG;
	}
	int again = file->kind == TEMPORARY ? make_temporary(file) : rewind_opening_again(file->opening, file->mode);
	struct in_place in = {.file = file};
	if (again < 0) {
		return -again;
	}
	if (fstat(again, &in.there) != 0) {
		in.error = errno;
	} else {
		snprintf(in.path, sizeof in.path, "/proc/self/fd/%d", again);
		in.error = zygote_each_fd(put_in_place, &in) ? in.error : EMFILE;
		*halfway = in.error != 0 && in.count > 0;
	}
	if (in.error == 0) {
		locks_moved(file->device, file->inode, &in.there);
		file->device = in.there.st_dev;
		file->inode = in.there.st_ino;
		if (file->kind == TEMPORARY) {
			note_rights(file, &in.there);
		}
		file->left = (struct stat){0};
		file->said = false;
	}
	close(again);
	return in.error;
}

static void cannot_be_opened(struct boot_file *file, int error, bool halfway)
{
	/* Of one whose bytes are not kept nobody else has taken them: whoever wrote to it cost the worker. */
	bool ends = file->kind == TEMPORARY && (halfway || error != EFBIG);
	if (!file->said) {
		log_format(HY_LOG_ERROR
		           "The file %s, which the boot opened, is another one by now, and cannot be opened as the boot "
		           "opened it: %s. %s",
		           file->name, error == EFBIG ? "what the boot wrote to it is too much to be kept" : strerror(error),
		           file->kind == LOG ? "What requests write goes to the one before, until it can be opened."
		           : ends            ? "This worker ends."
		                             : "This worker is replaced after the request.");
	}
	file->said = true;
	if (ends) {
		_exit(70);
	}
	state->replaced |= file->kind == TEMPORARY;
}

/* What is there is what this process has open. A temporary one nobody has given another name, or to others. */
static bool is_there(const struct boot_file *file, struct stat *there)
{
	if (file->kind == TEMPORARY && file->name[0] == '\0') {
		return fstat(file->fd, there) == 0;
	}
	if ((file->kind == TEMPORARY ? lstat(file->name, there) : stat(file->name, there)) != 0 ||
	    there->st_dev != file->device || there->st_ino != file->inode) {
		return false;
	}
	return file->kind != TEMPORARY || (there->st_nlink <= file->links && (there->st_mode & 07777) == file->mode &&
	                                   there->st_uid == file->user && there->st_gid == file->group);
}

static void look_at(struct boot_file *file, bool *anew)
{
	bool halfway = false;
	struct stat there;
	if (!is_there(file, &there)) {
		int error = open_anew(file, &halfway);
		*anew = true;
		if (error != 0) {
			cannot_be_opened(file, error, halfway);
		}
	}
}

void boot_files_look(enum boot_files which)
{
	bool anew = false;
	for (size_t i = 0; i < file_count; i++) {
		bool locked = which != BOOT_FILES_ALL && locks_are_on(files[i].device, files[i].inode);
		if (which == BOOT_FILES_ALL || locked == (which == BOOT_FILES_LOCKED)) {
			look_at(&files[i], &anew);
		}
	}
	if (anew) {
		tell();
	}
}

void boot_files_follow(void)
{
	for (size_t i = 0; i < file_count; i++) {
		struct boot_file *file = &files[i];
		struct stat there;
		bool halfway = false;
		/* One that is not there is made in the request, which may have locks for that. */
		if (file->kind == LOG && !locks_are_on(file->device, file->inode) && !is_there(file, &there) &&
		    stat(file->name, &there) == 0) {
			(void)open_anew(file, &halfway);
		}
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

/* Whether it holds what the boot left in it, and nothing else. */
static bool holds(const struct boot_file *file, int own)
{
	struct stat now;
	if (fstat(own, &now) != 0 || now.st_size != file->size) {
		return false;
	}
	uint8_t part[PART];
	for (off_t at = 0; at < file->size; at += PART) {
		size_t len = (size_t)MIN(PART, file->size - at);
		if (pread(own, part, len, at) != (ssize_t)len || memcmp(part, file->bytes + at, len) != 0) {
			return false;
		}
	}
	return true;
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
static void put_back(const struct boot_file *file, int own)
{
	off_t done = 0;
	int error = 0;
	while (done < file->size && error == 0) {
		ssize_t n = pwrite(own, file->bytes + done, (size_t)(file->size - done), done);
		done += MAX(n, 0);
		error = n > 0 || (n < 0 && errno == EINTR) ? 0 : n == 0 ? ENOSPC : errno;
	}
	cut(file, own, done);
	if (error != 0) {
		log_format("A file of the boot (descriptor %d) has %jd of the %jd bytes that the boot left in it: the others "
		           "cannot be written again (%s).",
		           file->fd, (intmax_t)done, (intmax_t)file->size, strerror(error));
	}
}

static void renew(struct boot_file *file)
{
	struct stat now;
	if (fstat(file->fd, &now) == 0 && is_unchanged(&now, &file->left) &&
	    file->left.st_ctim.tv_sec + OLD < file->looked) {
		return;
	}
	int own = open_again(file->fd);
	if (own < 0) {
		cannot_be_opened(file, errno, false);
	}
	/* What is written after this is not older. */
	file->looked = time(NULL);
	if (fstat(own, &file->left) != 0) {
		file->left = (struct stat){0};
	}
	if (!holds(file, own)) {
		put_back(file, own);
		file->left = (struct stat){0};
	}
	close(own);
}

/* What a request has written to a temporary file need not wait on the disk for the next one. A file that it has given
 * to others stays whole. */
void boot_files_settle(void)
{
	bool anew = false;
	for (size_t i = 0; i < file_count; i++) {
		struct boot_file *file = &files[i];
		struct stat there;
		if (file->kind != TEMPORARY || !file->known) {
			continue;
		}
		if (!is_there(file, &there)) {
			look_at(file, &anew);
		} else if (there.st_size > file->size && there.st_nlink <= 1) {
			cut(file, file->fd, file->size);
		}
	}
	if (anew) {
		tell();
	}
}

void boot_files_renew(void)
{
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].kind == TEMPORARY && files[i].known) {
			renew(&files[i]);
		}
	}
}

bool boot_files_written(void)
{
	for (size_t i = 0; i < file_count; i++) {
		const struct boot_file *file = &files[i];
		struct stat now;
		if (file->kind == TEMPORARY && !file->known &&
		    (rewind_was_written(&file->left) || fstat(file->fd, &now) != 0 || !is_unchanged(&now, &file->left))) {
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
		const struct boot_file *file = &files[i];
		struct stat st;
		if (file->kind == TEMPORARY && file->name[0] != '\0' && lstat(file->name, &st) == 0 &&
		    st.st_dev == file->device && st.st_ino == file->inode) {
			unlink(file->name);
		}
	}
}
