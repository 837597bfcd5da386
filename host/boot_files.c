/*
 * Files that the boot of each request would have made anew: temporary ones (tmpfile(), php://temp that has outgrown the
 * memory, SQLite's), and those that it opened with "w", which empties them. What one visitor wrote there is nothing
 * for the next.
 *
 * So at the beginning of a request they hold again what the boot, and the warm-up requests, have left in them: of a
 * file with a name that is what this process has written, for requests of other workers write to it as well. Large ones
 * do not: writing to one costs the worker. So does a file that "w" emptied when its name leads to another one by now
 * (renamed, removed); a request that begins so has one in memory, with what the boot left. What cannot be written
 * again, since the disk is full, is cut off, as where the boot itself meets a full disk.
 *
 * PHP removes tmpfile()s when it closes them, which a worker that is killed does not. The zygote removes those, of
 * which workers tell it by memory that they share (16 each, with names below 256 bytes); it believes of that only what
 * stat() confirms.
 *
 * Promised: of other files nothing is changed; neither are files without a name that are memory (memfd), nor what the
 * server's own output goes to, nor what was renamed. What holds what it should is only read. Nobody finds what a
 * visitor wrote.
 */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Bytes that are kept of one. */
#define MOST_KEPT ((off_t)REWIND_MOST_EMPTIED)
/* Bytes that are compared at once. */
#define PART (16l << 10)
/* The kernel's time of a change may be so much behind, in ns. */
#define TICK 20000000l

static struct boot_file {
	int fd;
	int own;          /* a second descriptor, to read and to write at any place */
	uint8_t *bytes;   /* NULL: too large, or nobody knows what the boot left */
	char *name;       /* NULL: it has none */
	bool temporary;   /* nobody else has it */
	struct stat then; /* with st_size */
} * files;
static size_t file_count;
/* One could not be made what it was: the worker goes after its next request, if not at once. */
static bool spoiled;

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

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool leads_to(const char *name, const struct stat *st)
{
	struct stat now;
	return stat(name, &now) == 0 && is_same(&now, st);
}

/* phpXXXXXX, for its owner only, and nowhere else. */
static bool has_temporary_name(const char *path, const struct stat *st)
{
	const char *name = strrchr(path, '/');
	return name != NULL && strncmp(name, "/php", 4) == 0 && strlen(name) == 10 && (st->st_mode & 0777) == 0600 &&
	       st->st_nlink == 1 && leads_to(path, st);
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

static bool is_temporary(const php_stream *stream, int fd, const struct stat *st)
{
	const struct plain_file *file = stream->abstract;
	return file->fd == fd && boot_files_is_temporary(stream) && stream->orig_path != NULL &&
	       has_temporary_name(stream->orig_path, st);
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

static uint8_t *read_whole(int fd, size_t size)
{
	uint8_t *bytes = pemalloc(size + 1, 1);
	if (pread(fd, bytes, size + 1, 0) != (ssize_t)size) {
		pefree(bytes, 1);
		return NULL;
	}
	return bytes;
}

/* Those of the last time, while they are noted again. */
static struct boot_file *noted_before;
static size_t noted_count;

/* The descriptor of our own for this file, which it had in the last note, or another entry has; -1: it has none. */
static int own_of(const struct stat *st)
{
	for (size_t i = 0; i < file_count; i++) {
		if (is_same(&files[i].then, st)) {
			return files[i].own;
		}
	}
	for (size_t i = 0; i < noted_count; i++) {
		if (is_same(&noted_before[i].then, st)) {
			return noted_before[i].own;
		}
	}
	return -1;
}

/* What the boot has left in a file. Nobody else writes to one without a name. In one that has a name there is also what
 * others have written: boots that empty it at this moment, requests of other workers. NULL: too large, or not known. */
static uint8_t *left_in(int fd, int own, bool temporary, struct stat *st)
{
	if (temporary) {
		return st->st_size > MOST_KEPT ? NULL : read_whole(own, (size_t)st->st_size);
	}
	size_t size;
	const uint8_t *written = rewind_left_in(fd, &size);
	if (written == NULL) {
		return NULL;
	}
	uint8_t *bytes = pemalloc(size + 1, 1);
	memcpy(bytes, written, size);
	st->st_size = (off_t)size;
	return bytes;
}

/* `name` of a file that has one. */
static void keep(int fd, struct stat *st, const char *name, bool temporary)
{
	for (size_t i = 0; i < file_count; i++) {
		if (is_same(&files[i].then, st) && (files[i].bytes != NULL || temporary || files[i].fd == fd)) {
			return;
		}
	}
	int own = own_of(st);
	own = own >= 0 ? own : open_again(fd);
	uint8_t *bytes = own < 0 ? NULL : left_in(fd, own, temporary, st);
	files = perealloc(files, (file_count + 1) * sizeof *files, 1);
	files[file_count++] = (struct boot_file){
	    .fd = fd,
	    .own = own,
	    .bytes = bytes,
	    .name = name == NULL ? NULL : pestrdup(name, 1),
	    .temporary = temporary,
	    .then = *st,
	};
}

/* Whether it is the descriptor of our own of one of these. */
static bool has_own(const struct boot_file *of, size_t count, int own)
{
	for (size_t i = 0; i < count; i++) {
		if (of[i].own == own) {
			return true;
		}
	}
	return false;
}

static bool look(int fd, void *to)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (!zygote_is_own(fd) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0 &&
	    (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH) && !rewind_is_memfd(fd) && !rewind_is_output(&st) &&
	    !has_own(noted_before, noted_count, fd)) {
		keep(fd, &st, NULL, true);
	}
	return true;
}

static void look_at_streams(void)
{
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		php_stream *stream = resource->type == php_file_le_stream() ? resource->ptr : NULL;
		int fd;
		struct stat st;
		if (stream == NULL || stream->ops != &php_stream_stdio_ops || stream->wrapper != &php_plain_files_wrapper ||
		    php_stream_cast(stream, PHP_STREAM_AS_FD_FOR_SELECT | PHP_STREAM_CAST_INTERNAL, (void *)&fd, 0) !=
		        SUCCESS ||
		    fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || rewind_is_output(&st)) {
			continue;
		}
		if (is_temporary(stream, fd, &st)) {
			keep(fd, &st, stream->orig_path, true);
		} else if (stream->mode[0] == 'w' && st.st_nlink > 0) {
			char path[64], name[PATH_MAX];
			snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
			ssize_t n = readlink(path, name, sizeof name - 1);
			name[n > 0 ? n : 0] = '\0';
			if (leads_to(name, &st)) {
				keep(fd, &st, name, false);
			}
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
		if (files[i].temporary && files[i].name != NULL && strlen(files[i].name) < sizeof own->file[0].name) {
			own->file[count].device = files[i].then.st_dev;
			own->file[count].inode = files[i].then.st_ino;
			strcpy(own->file[count++].name, files[i].name);
		}
	}
}

/* Files that nobody has any more are closed. */
static void forget_before(void)
{
	for (size_t i = 0; i < noted_count; i++) {
		int own = noted_before[i].own;
		if (own >= 0 && !has_own(files, file_count, own) && !has_own(noted_before, i, own)) {
			close(own);
		}
		if (noted_before[i].bytes != NULL) {
			pefree(noted_before[i].bytes, 1);
		}
		if (noted_before[i].name != NULL) {
			pefree(noted_before[i].name, 1);
		}
	}
	pefree(noted_before, 1);
	noted_before = NULL;
	noted_count = 0;
}

void boot_files_note(void)
{
	noted_before = files;
	noted_count = file_count;
	files = NULL;
	file_count = 0;
	rewind_watch_no_file();
	zygote_each_fd(look, NULL);
	look_at_streams();
	if (noted_before != NULL) {
		forget_before();
	}
	bool large = false;
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].bytes == NULL) {
			large = true;
			(void)rewind_watch_file(&files[i].then); /* of one that is not watched all is doubted */
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

static bool holds(const struct boot_file *file)
{
	struct stat now;
	off_t size = file->then.st_size;
	if (fstat(file->own, &now) != 0 || now.st_size != size) {
		return false;
	}
	uint8_t part[PART];
	for (off_t at = 0; at < size; at += PART) {
		size_t len = (size_t)MIN(PART, size - at);
		if (pread(file->own, part, len, at) != (ssize_t)len || memcmp(part, file->bytes + at, len) != 0) {
			return false;
		}
	}
	return true;
}

/* False: not all of it. Then it is what could be written. */
static bool put_back(const struct boot_file *file)
{
	off_t done = 0, size = file->then.st_size;
	int error = 0;
	while (done < size && error == 0) {
		ssize_t n = pwrite(file->own, file->bytes + done, (size_t)(size - done), done);
		done += MAX(n, 0);
		error = n > 0 || (n < 0 && errno == EINTR) ? 0 : n == 0 ? ENOSPC : errno;
	}
	while (ftruncate(file->own, done) != 0) {
		if (errno != EINTR) {
			log_format(HY_LOG_ERROR "A file of the boot (descriptor %d) cannot be cut back to what the boot left in it "
			                        "(%s); this worker ends.",
			           file->fd, strerror(errno));
			_exit(70);
		}
	}
	if (error != 0) {
		log_format("A file of the boot (descriptor %d) has %jd of the %jd bytes that the boot left in it: the others "
		           "cannot be written again (%s). This worker is replaced after the request.",
		           file->fd, (intmax_t)done, (intmax_t)size, strerror(error));
	}
	return error == 0;
}

struct stand_in {
	const struct boot_file *file;
	char path[64];
	bool failed;
};

static bool put_in_place(int fd, void *to)
{
	struct stand_in *in = to;
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (!zygote_is_own(fd) && fd != in->file->own && flags >= 0 && !(flags & O_PATH) && fstat(fd, &st) == 0 &&
	    is_same(&st, &in->file->then)) {
		in->failed |= rewind_replace_file(fd, in->path, flags & (O_ACCMODE | O_APPEND)) != 0;
	}
	return true;
}

/* Somebody has renamed or removed the file, with what the visitor before wrote to it: that stays what it is. This
 * request, the worker's last, has one in memory with what the boot left. */
static void stand_in(const struct boot_file *file)
{
	struct boot_file memory = *file;
	struct stand_in in = {.file = file};
	memory.own = memfd_create("boot file", MFD_CLOEXEC);
	snprintf(in.path, sizeof in.path, "/proc/self/fd/%d", memory.own);
	if (memory.own >= 0 && put_back(&memory)) {
		zygote_each_fd(put_in_place, &in);
	} else {
		in.failed = true;
	}
	if (in.failed) {
		log_format(HY_LOG_ERROR "The file %s, which the boot opened, is another one by now, and there is no memory or "
		                        "descriptor for what the boot left in it; this worker ends.",
		           file->name);
		_exit(70);
	}
	close(memory.own);
}

void boot_files_renew(void)
{
	for (size_t i = 0; i < file_count; i++) {
		const struct boot_file *file = &files[i];
		if (file->bytes == NULL || file->own < 0 || holds(file)) {
			continue;
		}
		if (file->temporary || leads_to(file->name, &file->then)) {
			spoiled |= !put_back(file);
		} else {
			stand_in(file);
		}
	}
}

static bool is_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Of a file that other workers have as well their writes do not count. */
static bool was_written(const struct boot_file *file)
{
	struct stat now;
	if (rewind_was_written(&file->then)) {
		return true;
	}
	return file->temporary && (fstat(file->own >= 0 ? file->own : file->fd, &now) != 0 || !is_same(&now, &file->then) ||
	                           now.st_size != file->then.st_size || !is_time(now.st_mtim, file->then.st_mtim) ||
	                           !is_time(now.st_ctim, file->then.st_ctim));
}

bool boot_files_written(void)
{
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].bytes == NULL && was_written(&files[i])) {
			return true;
		}
	}
	return spoiled;
}

bool boot_files_changed(void)
{
	for (size_t i = 0; i < file_count; i++) {
		if (!files[i].temporary && !leads_to(files[i].name, &files[i].then)) {
			return true;
		}
	}
	return boot_files_written();
}

void boot_files_remove(void)
{
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].temporary && files[i].name != NULL && leads_to(files[i].name, &files[i].then)) {
			unlink(files[i].name);
		}
	}
}
