/*
 * Files that the boot of each request would have made anew: temporary ones (tmpfile(), php://temp that has outgrown the
 * memory, SQLite's), and those that it opened with "w", which empties them. What one visitor wrote there is nothing
 * for the next.
 *
 * So at the beginning of a request they hold again what the boot has left in them. Large ones do not: writing to one
 * costs the worker.
 *
 * Promised: of other files nothing is changed; neither are files without a name that are memory (memfd), nor what the
 * server's own output goes to.
 */
#include "host.h"

#include "php_open_temporary_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Bytes that are kept of one. */
#define MOST_KEPT (256l << 10)
/* The kernel's time of a change may be so much behind, in ns. */
#define TICK 20000000l

static struct boot_file {
	int fd;
	uint8_t *bytes;   /* NULL: too large */
	struct stat then; /* with st_size */
} * files;
static size_t file_count;

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_output(const struct stat *st)
{
	struct stat own;
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fstat(fd, &own) == 0 && is_same(st, &own)) {
			return true;
		}
	}
	return false;
}

/* PHP's tmpfile() has a name until it is closed: phpXXXXXX, for its owner only. */
static bool is_temporary(int fd, const struct stat *st)
{
	char path[64], target[PATH_MAX];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	const char *directory = php_get_temporary_directory();
	size_t len = strlen(directory);
	return st->st_nlink == 0 || ((st->st_mode & 0777) == 0600 && strncmp(target, directory, len) == 0 &&
	                             strncmp(target + len, "/php", 4) == 0 && strlen(target + len + 4) == 6 &&
	                             strchr(target + len + 4, '/') == NULL);
}

/* A copy of it, also where it was opened for writing only. */
static uint8_t *read_whole(int fd, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *bytes = again < 0 ? NULL : pemalloc(size + 1, 1);
	if (bytes != NULL && pread(again, bytes, size + 1, 0) != (ssize_t)size) {
		pefree(bytes, 1);
		bytes = NULL;
	}
	if (again >= 0) {
		close(again);
	}
	return bytes;
}

static void keep(int fd, const struct stat *st)
{
	for (size_t i = 0; i < file_count; i++) {
		if (is_same(&files[i].then, st)) {
			return;
		}
	}
	files = perealloc(files, (file_count + 1) * sizeof *files, 1);
	files[file_count++] = (struct boot_file){
	    .fd = fd, .bytes = st->st_size > MOST_KEPT ? NULL : read_whole(fd, (size_t)st->st_size), .then = *st};
}

static bool look(int fd, void *to)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (!zygote_is_own(fd) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (flags & O_ACCMODE) != O_RDONLY &&
	    !(flags & O_PATH) && !rewind_is_memfd(fd) && is_temporary(fd, &st)) {
		keep(fd, &st);
	}
	return true;
}

static void look_for_emptied(void)
{
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		php_stream *stream = resource->type == php_file_le_stream() ? resource->ptr : NULL;
		int fd;
		struct stat st;
		if (stream != NULL && stream->ops == &php_stream_stdio_ops && stream->wrapper == &php_plain_files_wrapper &&
		    stream->mode[0] == 'w' &&
		    php_stream_cast(stream, PHP_STREAM_AS_FD_FOR_SELECT | PHP_STREAM_CAST_INTERNAL, (void *)&fd, 0) ==
		        SUCCESS &&
		    fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && !is_output(&st)) {
			keep(fd, &st);
		}
	}
	ZEND_HASH_FOREACH_END();
}

void boot_files_note(void)
{
	zygote_each_fd(look, NULL);
	look_for_emptied();
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].bytes == NULL) {
			/* A change that the kernel dates back to before now would not be seen. */
			nanosleep(&(struct timespec){.tv_nsec = TICK}, NULL);
			break;
		}
	}
}

void boot_files_renew(void)
{
	for (size_t i = 0; i < file_count; i++) {
		const struct boot_file *file = &files[i];
		off_t size = file->then.st_size;
		if (file->bytes != NULL &&
		    (pwrite(file->fd, file->bytes, (size_t)size, 0) != size || ftruncate(file->fd, size) != 0)) {
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

bool boot_files_changed(void)
{
	for (size_t i = 0; i < file_count; i++) {
		const struct stat *then = &files[i].then;
		struct stat now;
		if (files[i].bytes == NULL && (fstat(files[i].fd, &now) != 0 || !is_same(&now, then) ||
		                               now.st_size != then->st_size || !is_time(now.st_mtim, then->st_mtim))) {
			return true;
		}
	}
	return false;
}
