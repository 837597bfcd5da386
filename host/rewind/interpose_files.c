/*
 * Descriptors, their flags, files of /proc, the working directory and the umask.
 */
#include "connections.h"
#include "interpose.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <syslog.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

/* libc's own, looked up once, before the point. */
static FILE *(*libc_fopen)(const char *, const char *);
static int (*libc_fclose)(FILE *);
static int (*libc_pclose)(FILE *);
static int (*libc_closedir)(DIR *);
static FILE *(*libc_freopen)(const char *, const char *, FILE *);
static int (*libc_fcloseall)(void);
static void (*libc_closelog)(void);
static int (*libc_posix_fallocate)(int, off_t, off_t);

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_fopen = interpose_next("fopen");
	*(void **)&libc_fclose = interpose_next("fclose");
	*(void **)&libc_pclose = interpose_next("pclose");
	*(void **)&libc_closedir = interpose_next("closedir");
	*(void **)&libc_freopen = interpose_next("freopen");
	*(void **)&libc_fcloseall = interpose_next("fcloseall");
	*(void **)&libc_closelog = interpose_next("closelog");
	*(void **)&libc_posix_fallocate = interpose_next("posix_fallocate");
}

static void losing(int fd)
{
	if (connections_watching()) {
		connections_closed(fd);
	}
	openings_closed(fd);
	struct control *c = watching();
	struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d == NULL) {
		return;
	}
	/* With the last descriptor goes the lock: the copy becomes a file of its own. */
	if (d->taken && !d->held && d->copy != 0 && rewind_own_file(d->copy) != 0) {
		syscall(SYS_flock, d->copy, LOCK_UN);
		c->doubt = REWIND_DESCRIPTORS;
	}
	/* Whoever is at the other end hears of it: not of what ends by itself. */
	if (d->peer && !c->ending && !d->library && !d->datagram && d->copy != 0 && !connections_keeps(fd)) {
		syscall(SYS_close, d->copy);
		d->copy = 0;
		connection_in_doubt();
	}
	d->lost = c->any_lost = true;
	if (d->copy == 0 && c->doubt == REWIND_SURE) {
		c->doubt = REWIND_DESCRIPTORS; /* one of the rewinder's own, or there were too many to copy */
	}
	for (size_t i = 0; i < c->held_count; i++) {
		if (c->held[i].fd == fd) {
			c->doubt = REWIND_DESCRIPTORS; /* its locks go with it, and somebody else may take them */
		}
	}
}

EXPORT int close(int fd)
{
	losing(fd);
	return (int)syscall(SYS_close, fd);
}

/* libc keeps to itself what it closes. Then all are put back; but not a lock that goes with one. */
static void losing_some(void)
{
	struct control *c = watching();
	if (c != NULL) {
		c->any_unknown = true;
		c->doubt = c->held_count > 0 ? REWIND_DESCRIPTORS : c->doubt;
	}
}

EXPORT int close_range(unsigned from, unsigned to, int flags)
{
	struct control *c = watching();
	for (size_t fd = from; !(flags & CLOSE_RANGE_CLOEXEC) && c != NULL && fd < c->fd_count && fd <= to; fd++) {
		losing((int)fd);
	}
	if (c != NULL) {
		c->any_cloexec = true; /* CLOSE_RANGE_CLOEXEC */
	}
	return (int)syscall(SYS_close_range, from, to, flags);
}

EXPORT void closefrom(int from)
{
	close_range(from < 0 ? 0 : (unsigned)from, ~0u, 0);
}

EXPORT void closelog(void)
{
	losing_some();
	libc_closelog();
}

EXPORT int fcloseall(void)
{
	losing_some();
	return libc_fcloseall();
}

static void duplicating(int fd)
{
	if (connections_watching()) {
		connections_lost(fd, "it has a second descriptor");
	}
	struct control *c = watching();
	const struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d != NULL) {
		interpose_writing(fd); /* perhaps, by the other number, or a child by it */
		c->any_duplicate = true;
		if (d->peer) {
			connection_in_doubt(); /* what is said by another number is not seen */
		}
	}
}

EXPORT int dup(int fd)
{
	duplicating(fd);
	return (int)syscall(SYS_dup, fd);
}

EXPORT int dup2(int from, int to)
{
	duplicating(from);
	if (from == to) {
		return syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
	}
	losing(to);
	return (int)syscall(SYS_dup3, from, to, 0);
}

EXPORT int dup3(int from, int to, int flags)
{
	duplicating(from);
	losing(to);
	return (int)syscall(SYS_dup3, from, to, flags);
}

EXPORT int fclose(FILE *file)
{
	losing(fileno(file));
	return libc_fclose(file);
}

EXPORT int pclose(FILE *file)
{
	losing(fileno(file));
	return libc_pclose(file);
}

EXPORT int closedir(DIR *directory)
{
	losing(dirfd(directory));
	return libc_closedir(directory);
}

EXPORT int fcntl(int fd, int command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *with = va_arg(rest, void *);
	va_end(rest);
	if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) {
		interpose_locking_record(fd, with);
	}
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
		duplicating(fd);
	}
	struct control *c = watching();
	if ((command == F_SETLEASE || command == F_SETSIG || command == F_SETOWN || command == F_SETOWN_EX ||
	     command == F_NOTIFY || command == F_SETPIPE_SZ) &&
	    c != NULL && descriptor_of(fd) != NULL) {
		c->doubt = REWIND_DESCRIPTORS;
	}
	if (c != NULL) {
		/* Perhaps through a duplicate: php://stderr is one of what all workers write to. */
		c->any_flags |= command == F_SETFL;
		/* That flag is the number's own: no other one bears it. PHP's sessions set it of their file in each request. */
		c->any_cloexec |= command == F_SETFD && descriptor_of(fd) != NULL;
	}
	int result = (int)syscall(SYS_fcntl, fd, command, with);
	bool of_open_file = command == F_OFD_SETLK || command == F_OFD_SETLKW;
	if (of_open_file && result == 0 && ((const struct flock *)with)->l_type != F_UNLCK) {
		interpose_locked(fd, true);
	}
	return result;
}
EXPORT int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

/* Of a socket, a pipe or a terminal; or what is put back. */
static bool asks_only(unsigned long command)
{
	switch (command) {
	case FIONBIO:
	case FIOASYNC:
	case FIOCLEX:
	case FIONCLEX:
	case FIONREAD:
	case SIOCATMARK:
	case SIOCOUTQ:
	case TCGETS:
	case TIOCGWINSZ:
	case TIOCGPGRP:
	case TIOCGPTN:
		return true;
	default:
		return false;
	}
}

EXPORT int ioctl(int fd, unsigned long command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *with = va_arg(rest, void *);
	va_end(rest);
	if (command == FICLONE || command == FICLONERANGE) {
		interpose_writing(fd);
	}
	struct control *c = watching();
	if (c != NULL) {
		c->any_flags |= command == FIONBIO || command == FIOASYNC;
		const struct descriptor *d = descriptor_of(fd);
		c->any_cloexec |= d != NULL && (command == FIOCLEX || command == FIONCLEX);
		if (d != NULL && d->peer && !asks_only(command)) {
			connection_in_doubt();
		}
	}
	return (int)syscall(SYS_ioctl, fd, command, with);
}

/* What a process is told by writing to files of /proc (its name, its memory, how it is treated when memory is short)
 * has no way back. */

static void opened(int fd, int at, const char *path, int flags, bool missing)
{
	openings_opened(fd, at, path, flags, missing);
	struct control *c = watching();
	struct statfs fs;
	if (c == NULL || fd < 0 || ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC))) {
		return;
	}
	if (fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC) {
		c->doubt = REWIND_PROCESS;
	}
	interpose_opened_to_write(fd);
}

EXPORT int openat(int at, const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	bool missing = openings_missing(at, path, flags);
	int fd = (int)syscall(SYS_openat, at, path, flags, mode);
	opened(fd, at, path, flags, missing);
	return fd;
}
EXPORT int openat64(int at, const char *path, int flags, ...) __attribute__((alias("openat")));

EXPORT int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	bool missing = openings_missing(AT_FDCWD, path, flags);
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	opened(fd, AT_FDCWD, path, flags, missing);
	return fd;
}
EXPORT int open64(const char *path, int flags, ...) __attribute__((alias("open")));

/* What glibc's headers make of calls without a mode (_FORTIFY_SOURCE). */
EXPORT int __open_2(const char *path, int flags)
{
	return open(path, flags);
}
EXPORT int __open64_2(const char *path, int flags) __attribute__((alias("__open_2")));
EXPORT int __openat_2(int at, const char *path, int flags)
{
	return openat(at, path, flags);
}
EXPORT int __openat64_2(int at, const char *path, int flags) __attribute__((alias("__openat_2")));

EXPORT int creat(const char *path, mode_t mode)
{
	return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
EXPORT int creat64(const char *path, mode_t mode) __attribute__((alias("creat")));

static void opened_by_libc(FILE *file, const char *path, const char *mode)
{
	if (file != NULL && (mode[0] != 'r' || strchr(mode, '+') != NULL)) {
		int how = strchr(mode, '+') != NULL ? O_RDWR : O_WRONLY;
		/* PHP's touch() makes so ("w") what is not there, and leaves alone what is: that empties nothing. */
		how |= mode[0] == 'w' ? O_CREAT : mode[0] == 'a' ? O_CREAT | O_APPEND : 0;
		if (path != NULL) {
			opened(fileno(file), AT_FDCWD, path, how | (strchr(mode, 'x') != NULL ? O_EXCL : 0), false);
		}
	}
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
	FILE *file = libc_fopen(path, mode);
	opened_by_libc(file, path, mode);
	return file;
}
EXPORT FILE *fopen64(const char *path, const char *mode) __attribute__((alias("fopen")));

EXPORT FILE *freopen(const char *path, const char *mode, FILE *file)
{
	losing(fileno(file));
	file = libc_freopen(path, mode, file);
	opened_by_libc(file, path, mode);
	return file;
}
EXPORT FILE *freopen64(const char *path, const char *mode, FILE *file) __attribute__((alias("freopen")));

/* Writing to files, for who wants to know of it. What sockets know as well is in interpose_sockets.c. */

static struct watched_file *watched(const struct stat *st)
{
	struct control *c = rewind_control;
	for (size_t i = 0; c != NULL && i < c->watched_count; i++) {
		if (c->watched[i].device == st->st_dev && c->watched[i].inode == st->st_ino) {
			return &c->watched[i];
		}
	}
	return NULL;
}

static void writing(const struct stat *st)
{
	struct watched_file *file = watched(st);
	if (file != NULL) {
		file->written = true;
	}
}

void interpose_opened_to_write(int fd)
{
	struct stat st;
	const struct control *c = watching();
	if (c != NULL && c->watched_count > 0 && fstat(fd, &st) == 0) {
		writing(&st);
	}
}

bool rewind_watch_file(const struct stat *st)
{
	struct control *c = rewind_control;
	if (c == NULL || c->watched_count == MAX_WATCHED) {
		return false;
	}
	if (watched(st) == NULL) {
		c->watched[c->watched_count++] = (struct watched_file){.device = st->st_dev, .inode = st->st_ino};
	}
	return true;
}

void rewind_watch_no_file(void)
{
	if (rewind_control != NULL) {
		rewind_control->watched_count = 0;
	}
}

bool rewind_was_written(const struct stat *st)
{
	const struct watched_file *file = watched(st);
	return file == NULL || file->written;
}

EXPORT int ftruncate(int fd, off_t size)
{
	interpose_writing(fd);
	int failed = (int)syscall(SYS_ftruncate, fd, size);
	if (failed == 0) {
		openings_truncated(fd, NULL);
	}
	return failed;
}
EXPORT int ftruncate64(int fd, off64_t size) __attribute__((alias("ftruncate")));

EXPORT int truncate(const char *path, off_t size)
{
	struct stat st;
	const struct control *c = watching();
	if (c != NULL && c->watched_count > 0 && stat(path, &st) == 0) {
		writing(&st);
	}
	int failed = (int)syscall(SYS_truncate, path, size);
	if (failed == 0) {
		openings_truncated(-1, path);
	}
	return failed;
}
EXPORT int truncate64(const char *path, off64_t size) __attribute__((alias("truncate")));

EXPORT ssize_t pwrite(int fd, const void *from, size_t len, off_t at)
{
	interpose_writing(fd);
	return syscall(SYS_pwrite64, fd, from, len, at);
}
EXPORT ssize_t pwrite64(int fd, const void *from, size_t len, off64_t at) __attribute__((alias("pwrite")));

EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
	interpose_writing(fd);
	return syscall(SYS_pwritev, fd, parts, count, at, 0);
}
EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) __attribute__((alias("pwritev")));

EXPORT ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
	interpose_writing(fd);
	return syscall(SYS_pwritev2, fd, parts, count, at, 0, flags);
}
EXPORT ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags)
    __attribute__((alias("pwritev2")));

EXPORT ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags)
{
	interpose_writing(to);
	return syscall(SYS_copy_file_range, from, from_at, to, to_at, len, flags);
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t len)
{
	interpose_writing(fd);
	return (int)syscall(SYS_fallocate, fd, mode, at, len);
}
EXPORT int fallocate64(int fd, int mode, off64_t at, off64_t len) __attribute__((alias("fallocate")));

EXPORT int posix_fallocate(int fd, off_t at, off_t len)
{
	interpose_writing(fd);
	return libc_posix_fallocate(fd, at, len);
}
EXPORT int posix_fallocate64(int fd, off64_t at, off64_t len) __attribute__((alias("posix_fallocate")));

/* Working directory, umask. */

EXPORT int chdir(const char *path)
{
	struct control *c = watching();
	if (c != NULL) {
		c->directory_changed = true;
	}
	return (int)syscall(SYS_chdir, path);
}

EXPORT int fchdir(int fd)
{
	struct control *c = watching();
	if (c != NULL) {
		c->directory_changed = true;
	}
	return (int)syscall(SYS_fchdir, fd);
}

EXPORT mode_t umask(mode_t mask)
{
	struct control *c = watching();
	if (c != NULL) {
		c->umask_changed = true;
	}
	return (mode_t)syscall(SYS_umask, mask);
}
