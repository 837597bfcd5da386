/*
 * Files that the boot of each request would have made anew: temporary ones (tmpfile(), php://temp that has outgrown the
 * memory, SQLite's), and those that it opened with "w", which empties them. What one visitor wrote there is nothing
 * for the next.
 *
 * So at the beginning of a request they hold again what the boot has left in them. Large ones do not: writing to one
 * costs the worker. So does a file that "w" emptied when its name leads to another one by now (renamed, removed).
 *
 * Promised: of other files nothing is changed; neither are files without a name that are memory (memfd), nor what the
 * server's own output goes to, nor what was renamed. What holds what it should is only read.
 */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Bytes that are kept of one. */
#define MOST_KEPT (256l << 10)
/* Bytes that are compared at once. */
#define PART (16l << 10)
/* The kernel's time of a change may be so much behind, in ns. */
#define TICK 20000000l

static struct boot_file {
	int fd;
	int own;          /* a second descriptor, to read and to write at any place */
	uint8_t *bytes;   /* NULL: too large */
	char *name;       /* NULL: it has none */
	bool temporary;   /* nobody else has it */
	struct stat then; /* with st_size */
} * files;
static size_t file_count;

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool leads_to(const char *name, const struct stat *st)
{
	struct stat now;
	return stat(name, &now) == 0 && is_same(&now, st);
}

/*
 * PHP's tmpfile() has a name until it is closed: phpXXXXXX, for its owner only. tempnam() makes such names as well, but
 * what is opened by one is not of this mode.
 */
static bool is_temporary(const php_stream *stream, const struct stat *st)
{
	const char *name = stream->orig_path == NULL ? NULL : strrchr(stream->orig_path, '/');
	return strcmp(stream->mode, "r+b") == 0 && name != NULL && strncmp(name, "/php", 4) == 0 && strlen(name) == 10 &&
	       (st->st_mode & 0777) == 0600 && st->st_nlink == 1 && leads_to(stream->orig_path, st);
}

/* A second descriptor, also where the first was opened for writing only, or for appending. It stays open: closing it
 * would give up the process' record locks on the file. -1: that is not allowed. */
static int open_again(int fd)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = open(path, O_RDWR | O_CLOEXEC);
	int high = again < 0 ? -1 : fcntl(again, F_DUPFD_CLOEXEC, REWIND_OWN_FROM);
	if (high >= 0) {
		close(again);
	}
	return high >= 0 ? high : again;
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

/* `name` of a file that has one. */
static void keep(int fd, const struct stat *st, const char *name, bool temporary)
{
	for (size_t i = 0; i < file_count; i++) {
		if (is_same(&files[i].then, st) && (files[i].bytes != NULL || temporary || files[i].fd == fd)) {
			return;
		}
	}
	int own = open_again(fd);
	files = perealloc(files, (file_count + 1) * sizeof *files, 1);
	files[file_count++] = (struct boot_file){
	    .fd = fd,
	    .own = own,
	    .bytes = own < 0 || st->st_size > MOST_KEPT ? NULL : read_whole(own, (size_t)st->st_size),
	    .name = name == NULL ? NULL : pestrdup(name, 1),
	    .temporary = temporary,
	    .then = *st,
	};
}

static bool look(int fd, void *to)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (!zygote_is_own(fd) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0 &&
	    (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH) && !rewind_is_memfd(fd) && !rewind_is_output(&st)) {
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
		if (is_temporary(stream, &st)) {
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

void boot_files_note(void)
{
	zygote_each_fd(look, NULL);
	look_at_streams();
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].bytes == NULL) {
			/* A change that the kernel dates back to before now would not be seen. */
			nanosleep(&(struct timespec){.tv_nsec = TICK}, NULL);
			break;
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

void boot_files_renew(void)
{
	for (size_t i = 0; i < file_count; i++) {
		const struct boot_file *file = &files[i];
		off_t size = file->then.st_size;
		bool mine = file->temporary || leads_to(file->name, &file->then);
		if (file->bytes != NULL && mine && !holds(file) &&
		    (pwrite(file->own, file->bytes, (size_t)size, 0) != size || ftruncate(file->own, size) != 0)) {
			log_format(HY_LOG_ERROR "A file of the boot (descriptor %d) cannot be made what the boot left in it (%s); "
			                        "this worker ends.",
			           file->fd, strerror(errno));
			_exit(70);
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
	if (!file->temporary) {
		return rewind_was_written(file->fd);
	}
	return fstat(file->own >= 0 ? file->own : file->fd, &now) != 0 || !is_same(&now, &file->then) ||
	       now.st_size != file->then.st_size || !is_time(now.st_mtim, file->then.st_mtim);
}

bool boot_files_changed(void)
{
	for (size_t i = 0; i < file_count; i++) {
		const struct boot_file *file = &files[i];
		if ((!file->temporary && !leads_to(file->name, &file->then)) || (file->bytes == NULL && was_written(file))) {
			return true;
		}
	}
	return false;
}

void boot_files_remove(void)
{
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].temporary && files[i].name != NULL && leads_to(files[i].name, &files[i].then)) {
			unlink(files[i].name);
		}
	}
}
