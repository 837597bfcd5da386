/*
 * The host's own versions of a few libc functions. Symbols of the executable come first in every look-up, so libphp and
 * all libraries call these. Until the point is reached, and in everything that concerns only what came after it, they
 * do what libc's do. They note what a rewind has to take back, and keep what it could not.
 */
#include "internal.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <grp.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static inline struct control *watching(void)
{
	struct control *c = rewind_control;
	return c != NULL && c->active ? c : NULL;
}

static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	if (found == NULL) {
		abort(); /* libc without one of its own functions */
	}
	return found;
}

/* libc's own, looked up once, before the point. */
static int (*libc_sigaction)(int, const struct sigaction *, struct sigaction *);
static sighandler_t (*libc_signal)(int, sighandler_t);
static FILE *(*libc_fopen)(const char *, const char *);
static int (*libc_fclose)(FILE *);
static int (*libc_pclose)(FILE *);
static int (*libc_closedir)(DIR *);
static void *(*libc_dlopen)(const char *, int);
static int (*libc_pthread_setname_np)(pthread_t, const char *);
static int (*libc_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_sigaction = next("sigaction");
	*(void **)&libc_signal = next("signal");
	*(void **)&libc_fopen = next("fopen");
	*(void **)&libc_fclose = next("fclose");
	*(void **)&libc_pclose = next("pclose");
	*(void **)&libc_closedir = next("closedir");
	*(void **)&libc_dlopen = next("dlopen");
	*(void **)&libc_pthread_setname_np = next("pthread_setname_np");
	*(void **)&libc_pthread_create = next("pthread_create");
}

/* Mappings. */

static uintptr_t page_up(uintptr_t at)
{
	return (at + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1);
}

static void note_made(struct control *c, uintptr_t start, size_t len, bool chunk)
{
	if (c->made_count == MAX_MAPPINGS) {
		c->must_sweep = true; /* too many to note one by one */
		return;
	}
	c->made[c->made_count++] = (struct made){start, start + page_up(len), chunk};
}

/* The note of a mapping made since the point that covers all of [start, end). */
static struct made *find_made(struct control *c, uintptr_t start, uintptr_t end)
{
	for (size_t i = 0; i < c->made_count; i++) {
		if (start >= c->made[i].start && end <= c->made[i].end) {
			return &c->made[i];
		}
	}
	return NULL;
}

/* Takes [start, end) out of a note; what is left of it before and behind stays noted. */
static void forget_made(struct control *c, struct made *note, uintptr_t start, uintptr_t end)
{
	struct made was = *note;
	*note = c->made[--c->made_count];
	if (was.start < start) {
		note_made(c, was.start, start - was.start, false);
	}
	if (end < was.end) {
		note_made(c, end, was.end - end, false);
	}
}

static bool of_snapshot(const struct control *c, uintptr_t start, uintptr_t end)
{
	for (size_t i = 0; i < c->known_count; i++) {
		if (start < c->known[i].end && end > c->known[i].start) {
			return true;
		}
	}
	return false;
}

/* ZendMM asks for chunks of this size all the time and counts on zeros in the first page only; nobody else in libphp
 * maps just so much. */
static bool is_chunk_request(const struct control *c, const void *at, size_t len, int protection, int flags,
                             uintptr_t caller)
{
	return at == NULL && len == CHUNK_SIZE && protection == (PROT_READ | PROT_WRITE) &&
	       flags == (MAP_PRIVATE | MAP_ANONYMOUS) && caller >= c->libphp_low && caller < c->libphp_high;
}

/* At an address that is a multiple of the size, as ZendMM needs it. */
static uintptr_t map_chunk(void)
{
	uintptr_t at =
	    (uintptr_t)syscall(SYS_mmap, NULL, 2 * CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((void *)at == MAP_FAILED) {
		return at;
	}
	uintptr_t chunk = (at + CHUNK_SIZE - 1) & ~(CHUNK_SIZE - 1);
	if (chunk > at) {
		syscall(SYS_munmap, at, chunk - at);
	}
	syscall(SYS_munmap, chunk + CHUNK_SIZE, at + CHUNK_SIZE - chunk);
	return chunk;
}

EXPORT void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
	struct control *c = watching();
	if (c == NULL) {
		return (void *)syscall(SYS_mmap, at, len, protection, flags, fd, offset);
	}
	if (is_chunk_request(c, at, len, protection, flags, (uintptr_t)__builtin_return_address(0))) {
		bool kept = c->chunk_count > 0;
		uintptr_t chunk = kept ? c->chunks[--c->chunk_count] : map_chunk();
		if (kept) {
			/* Of a new chunk's header ZendMM writes only what is not zero. */
			memset((void *)chunk, 0, PAGE_SIZE);
		}
		if ((void *)chunk != MAP_FAILED) {
			note_made(c, chunk, CHUNK_SIZE, true);
		}
		return (void *)chunk;
	}
	if (flags & MAP_FIXED && of_snapshot(c, (uintptr_t)at, (uintptr_t)at + page_up(len))) {
		c->doubt = REWIND_MAPPINGS;
	}
	void *result = (void *)syscall(SYS_mmap, at, len, protection, flags, fd, offset);
	if (result != MAP_FAILED && find_made(c, (uintptr_t)result, (uintptr_t)result + page_up(len)) == NULL) {
		note_made(c, (uintptr_t)result, len, false);
	}
	return result;
}
EXPORT void *mmap64(void *at, size_t len, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

EXPORT int munmap(void *at, size_t len)
{
	struct control *c = watching();
	uintptr_t start = (uintptr_t)at, end = start + page_up(len);
	if (c != NULL && start % PAGE_SIZE == 0 && len != 0) {
		struct made *note = find_made(c, start, end);
		if (note == NULL && of_snapshot(c, start, end)) {
			/* Unmapped memory of the snapshot could not be put back; it stays, unused, until the rewind. */
			return 0;
		}
		if (note != NULL) {
			bool chunk = note->chunk && note->start == start && note->end == end;
			forget_made(c, note, start, end);
			if (chunk && c->chunk_count < MAX_CHUNKS) {
				c->chunks[c->chunk_count++] = start;
				return 0;
			}
		}
	}
	return (int)syscall(SYS_munmap, at, len);
}

EXPORT void *mremap(void *at, size_t old_len, size_t new_len, int flags, ...)
{
	struct control *c = watching();
	void *to = NULL;
	if (flags & MREMAP_FIXED) {
		va_list rest;
		va_start(rest, flags);
		to = va_arg(rest, void *);
		va_end(rest);
	}
	uintptr_t start = (uintptr_t)at;
	if (c != NULL && of_snapshot(c, start, start + page_up(old_len))) {
		errno = ENOMEM; /* the caller copies instead, as it does where memory is short */
		return MAP_FAILED;
	}
	void *result = (void *)syscall(SYS_mremap, at, old_len, new_len, flags, to);
	if (c != NULL && result != MAP_FAILED) {
		struct made *note = find_made(c, start, start + page_up(old_len));
		if (note != NULL) {
			forget_made(c, note, start, start + page_up(old_len));
		}
		note_made(c, (uintptr_t)result, new_len, false);
	}
	return result;
}

EXPORT int mprotect(void *at, size_t len, int protection)
{
	struct control *c = watching();
	if (c != NULL && memory_find((uintptr_t)at) != SIZE_MAX) {
		c->doubt = REWIND_MAPPINGS;
	}
	return (int)syscall(SYS_mprotect, at, len, protection);
}

/* A page that is thrown away changes without having been written; so it is written. */
static void touch(uintptr_t start, uintptr_t end)
{
	for (uintptr_t at = start & ~(PAGE_SIZE - 1); at < end; at += PAGE_SIZE) {
		if (memory_find(at) != SIZE_MAX) {
			volatile uint8_t *byte = (volatile uint8_t *)at;
			*byte = *byte;
		}
	}
}

EXPORT int madvise(void *at, size_t len, int advice)
{
	int result = (int)syscall(SYS_madvise, at, len, advice);
	if (watching() != NULL && result == 0 && (advice == MADV_DONTNEED || advice == MADV_FREE)) {
		touch((uintptr_t)at, (uintptr_t)at + len);
	}
	return result;
}

/* Descriptors. */

static void losing(int fd)
{
	struct control *c = watching();
	struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d == NULL) {
		return;
	}
	d->lost = c->any_lost = true;
	for (size_t i = 0; i < c->held_count; i++) {
		if (c->held[i].fd == fd) {
			c->doubt = REWIND_DESCRIPTORS; /* its locks go with it, and somebody else may take them */
		}
	}
}

static inline void using(int fd)
{
	struct control *c = watching();
	const struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d != NULL && d->peer) {
		c->doubt = REWIND_CONNECTION;
	}
}

/* A message that needs no answer leaves nothing behind here; whether there was an answer is seen when the work is over,
 * and before the first message of the next. */
static inline void sending(int fd)
{
	struct control *c = watching();
	struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d == NULL || !d->peer) {
		return;
	}
	if (!d->datagram) {
		c->doubt = REWIND_CONNECTION;
	} else if (!d->sent) {
		d->sent = c->any_sent = true;
		if (process_was_answered(fd)) {
			c->doubt = REWIND_CONNECTION;
		}
	}
}

EXPORT int close(int fd)
{
	losing(fd);
	return (int)syscall(SYS_close, fd);
}

static void duplicating(int fd)
{
	struct control *c = watching();
	if (c != NULL && descriptor_of(fd) != NULL) {
		c->any_duplicate = true;
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
	if (from != to) {
		losing(to);
	}
	return (int)syscall(SYS_dup2, from, to);
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

/* Locks on files that the boot opened. One of a library that was held at the point belongs to whoever took it
 * (opcache), and may be taken and given back by the same. */
static void locking(int fd)
{
	struct control *c = watching();
	struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d != NULL && !(d->held && d->library)) {
		d->locked = c->any_locked = true;
	} else if (d == NULL && c != NULL) {
		c->locked_other = true;
	}
}

/* Record locks: what was held at the point and is given up cannot be said to have been held all the time. */
static void locking_record(int fd, const struct flock *lock)
{
	struct control *c = watching();
	locking(fd);
	if (c == NULL || lock == NULL) {
		return;
	}
	for (size_t i = 0; i < c->held_count; i++) {
		const struct held *held = &c->held[i];
		bool weaker = lock->l_type == F_UNLCK || lock->l_type < held->type;
		int64_t end = lock->l_len == 0 ? INT64_MAX : lock->l_start + lock->l_len;
		bool apart = lock->l_whence == SEEK_SET && (lock->l_start >= held->end || end <= held->start);
		if (held->fd == fd && weaker && !apart) {
			c->doubt = REWIND_DESCRIPTORS;
		}
	}
}

EXPORT int flock(int fd, int operation)
{
	locking(fd);
	return (int)syscall(SYS_flock, fd, operation);
}

EXPORT int fcntl(int fd, int command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *with = va_arg(rest, void *);
	va_end(rest);
	if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) {
		locking_record(fd, with);
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
	if ((command == F_SETFL || command == F_SETFD) && c != NULL) {
		/* Perhaps through a duplicate: php://stderr is one of what all workers write to. */
		c->any_flags = true;
	}
	return (int)syscall(SYS_fcntl, fd, command, with);
}
EXPORT int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

EXPORT int ioctl(int fd, unsigned long command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *with = va_arg(rest, void *);
	va_end(rest);
	struct control *c = watching();
	if (c != NULL && (command == FIONBIO || command == FIOASYNC || command == FIOCLEX || command == FIONCLEX)) {
		c->any_flags = true;
	}
	return (int)syscall(SYS_ioctl, fd, command, with);
}

EXPORT int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	using(epoll);
	return (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
}

EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *before)
{
	using(fd);
	return (int)syscall(SYS_timerfd_settime, fd, flags, to, before);
}

EXPORT int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	using(fd);
	return (int)syscall(SYS_inotify_add_watch, fd, path, mask);
}

EXPORT int inotify_rm_watch(int fd, int watch)
{
	using(fd);
	return (int)syscall(SYS_inotify_rm_watch, fd, watch);
}

/* Options and addresses of a socket: there are too many to be noted. */
EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
	using(fd);
	return (int)syscall(SYS_setsockopt, fd, level, option, value, len);
}

EXPORT int bind(int fd, const struct sockaddr *to, socklen_t len)
{
	using(fd);
	return (int)syscall(SYS_bind, fd, to, len);
}

EXPORT int listen(int fd, int most)
{
	using(fd);
	return (int)syscall(SYS_listen, fd, most);
}

EXPORT int accept(int fd, struct sockaddr *restrict from, socklen_t *restrict len)
{
	using(fd);
	return (int)syscall(SYS_accept, fd, from, len);
}

EXPORT int accept4(int fd, struct sockaddr *restrict from, socklen_t *restrict len, int flags)
{
	using(fd);
	return (int)syscall(SYS_accept4, fd, from, len, flags);
}

EXPORT int connect(int fd, const struct sockaddr *to, socklen_t len)
{
	using(fd);
	return (int)syscall(SYS_connect, fd, to, len);
}

EXPORT int shutdown(int fd, int how)
{
	using(fd);
	return (int)syscall(SYS_shutdown, fd, how);
}

EXPORT ssize_t read(int fd, void *to, size_t len)
{
	using(fd);
	return syscall(SYS_read, fd, to, len);
}

EXPORT ssize_t write(int fd, const void *from, size_t len)
{
	sending(fd);
	return syscall(SYS_write, fd, from, len);
}

EXPORT ssize_t readv(int fd, const struct iovec *parts, int count)
{
	using(fd);
	return syscall(SYS_readv, fd, parts, count);
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
	sending(fd);
	return syscall(SYS_writev, fd, parts, count);
}

EXPORT ssize_t recv(int fd, void *to, size_t len, int flags)
{
	using(fd);
	return syscall(SYS_recvfrom, fd, to, len, flags, NULL, NULL);
}

EXPORT ssize_t recvfrom(int fd, void *to, size_t len, int flags, struct sockaddr *restrict from,
                        socklen_t *restrict from_len)
{
	using(fd);
	return syscall(SYS_recvfrom, fd, to, len, flags, from, from_len);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	using(fd);
	return syscall(SYS_recvmsg, fd, message, flags);
}

EXPORT ssize_t send(int fd, const void *from, size_t len, int flags)
{
	sending(fd);
	return syscall(SYS_sendto, fd, from, len, flags, NULL, 0);
}

EXPORT ssize_t sendto(int fd, const void *from, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	sending(fd);
	return syscall(SYS_sendto, fd, from, len, flags, to, to_len);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	sending(fd);
	return syscall(SYS_sendmsg, fd, message, flags);
}

EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
	sending(fd);
	return (int)syscall(SYS_sendmmsg, fd, messages, count, flags);
}

EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
	using(fd);
	return (int)syscall(SYS_recvmmsg, fd, messages, count, flags, timeout);
}

/* System V semaphores: one that a request holds is given back, as by the kernel at the end of a process. */

static void note_undo(int set, const struct sembuf *operations, size_t count)
{
	struct control *c = rewind_control; /* before the point as well: see rewind_semaphores() */
	for (size_t n = 0; c != NULL && n < count; n++) {
		if (!(operations[n].sem_flg & SEM_UNDO) || operations[n].sem_op == 0) {
			continue;
		}
		size_t i = 0;
		while (i < c->undo_count && (c->undo[i].set != set || c->undo[i].number != (short)operations[n].sem_num)) {
			i++;
		}
		if (i == MAX_UNDO) {
			c->doubt = REWIND_PROCESS;
			return;
		}
		if (i == c->undo_count) {
			c->undo_count++;
			c->undo[i].set = set;
			c->undo[i].number = (short)operations[n].sem_num;
			c->undo[i].sum = 0;
		}
		c->undo[i].sum = (short)(c->undo[i].sum + operations[n].sem_op);
	}
}

EXPORT int semtimedop(int set, struct sembuf *operations, size_t count, const struct timespec *timeout)
{
	int result = (int)syscall(SYS_semtimedop, set, operations, count, timeout);
	if (result == 0) {
		note_undo(set, operations, count);
	}
	return result;
}

EXPORT int semop(int set, struct sembuf *operations, size_t count)
{
	return semtimedop(set, operations, count, NULL);
}

/* What a process is told by writing to files of /proc (its name, its memory, how it is treated when memory is short)
 * has no way back. */

static void opened(int fd, int flags)
{
	struct control *c = watching();
	struct statfs fs;
	if (c != NULL && fd >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstatfs(fd, &fs) == 0 &&
	    fs.f_type == PROC_SUPER_MAGIC) {
		c->doubt = REWIND_PROCESS;
	}
}

EXPORT int openat(int at, const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	int fd = (int)syscall(SYS_openat, at, path, flags, mode);
	opened(fd, flags);
	return fd;
}
EXPORT int openat64(int at, const char *path, int flags, ...) __attribute__((alias("openat")));

EXPORT int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	opened(fd, flags);
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

EXPORT FILE *fopen(const char *path, const char *mode)
{
	FILE *file = libc_fopen(path, mode);
	if (file != NULL && (mode[0] != 'r' || strchr(mode, '+') != NULL)) {
		opened(fileno(file), O_RDWR);
	}
	return file;
}
EXPORT FILE *fopen64(const char *path, const char *mode) __attribute__((alias("fopen")));

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

/* Signals, timers, threads, priorities. */

static void changing(int signal, const void *handler)
{
	struct control *c = watching();
	/* PHP sets the handler of its timeout anew for each request. */
	if (c != NULL && signal >= 1 && signal <= MAX_SIGNALS && c->actions[signal].handler != handler) {
		c->actions_changed |= 1ull << (signal - 1);
	}
}

EXPORT int sigaction(int signal, const struct sigaction *restrict action, struct sigaction *restrict old)
{
	if (action != NULL) {
		changing(signal, (const void *)action->sa_handler);
	}
	return libc_sigaction(signal, action, old);
}

EXPORT sighandler_t signal(int signal, sighandler_t handler)
{
	changing(signal, (const void *)handler);
	return libc_signal(signal, handler);
}

EXPORT int setitimer(__itimer_which_t which, const struct itimerval *restrict value, struct itimerval *restrict old)
{
	struct control *c = watching();
	if (c != NULL) {
		bool set = value->it_value.tv_sec != 0 || value->it_value.tv_usec != 0;
		uint8_t bit = (uint8_t)(1u << which);
		c->timers_set = set ? c->timers_set | bit : (uint8_t)(c->timers_set & ~bit);
	}
	return (int)syscall(SYS_setitimer, which, value, old);
}

EXPORT unsigned alarm(unsigned seconds)
{
	struct control *c = watching();
	if (c != NULL && seconds != 0) {
		c->timers_set |= 1u << ITIMER_REAL;
	}
	return (unsigned)syscall(SYS_alarm, seconds);
}

/*
 * PHP loads extensions so that they and their libraries (libcurl, libpq) find libc's functions before those above. That
 * protects them from names that a web server happens to have; this process has none of its own to offer but these.
 */
EXPORT void *dlopen(const char *path, int mode)
{
	return libc_dlopen(path, rewind_control == NULL ? mode : mode & ~RTLD_DEEPBIND);
}

EXPORT int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *),
                          void *restrict with)
{
	struct control *c = watching();
	if (c != NULL) {
		c->threads_started = true;
	}
	return libc_pthread_create(thread, attributes, run, with);
}

/* What a process is: priority, limits, session, user. Most of it has no way back. */

static void becoming(void)
{
	struct control *c = watching();
	if (c != NULL) {
		c->doubt = REWIND_PROCESS;
	}
}

EXPORT int prctl(int option, ...)
{
	va_list rest;
	va_start(rest, option);
	unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long), d = va_arg(rest, unsigned long),
	              e = va_arg(rest, unsigned long);
	va_end(rest);
	struct control *c = watching();
	switch (option) {
	case PR_SET_NAME:
		if (c != NULL) {
			c->name_changed = true;
		}
		break;
	case PR_SET_TIMERSLACK:
		if (c != NULL) {
			c->slack_changed = true;
		}
		break;
	case PR_SET_PDEATHSIG:
		if (a != SIGKILL) { /* as it is anyway */
			becoming();
		}
		break;
	case PR_GET_NAME:
	case PR_GET_TIMERSLACK:
	case PR_GET_DUMPABLE:
	case PR_GET_PDEATHSIG:
	case PR_GET_SECCOMP:
	case PR_GET_NO_NEW_PRIVS:
	case PR_GET_THP_DISABLE:
	case PR_GET_KEEPCAPS:
	case PR_GET_SECUREBITS:
	case PR_GET_CHILD_SUBREAPER:
	case PR_GET_TID_ADDRESS:
	case PR_CAPBSET_READ:
	case PR_SET_VMA: /* names of mappings */
		break;
	default:
		becoming();
	}
	return (int)syscall(SYS_prctl, option, a, b, d, e);
}

EXPORT int pthread_setname_np(pthread_t thread, const char *name)
{
	struct control *c = watching();
	if (c != NULL) {
		c->name_changed = true;
	}
	return libc_pthread_setname_np(thread, name);
}

EXPORT int sched_setaffinity(pid_t process, size_t size, const cpu_set_t *set)
{
	becoming();
	return (int)syscall(SYS_sched_setaffinity, process, size, set);
}

EXPORT int sched_setscheduler(pid_t process, int policy, const struct sched_param *param)
{
	becoming();
	return (int)syscall(SYS_sched_setscheduler, process, policy, param);
}

EXPORT int prlimit(pid_t process, __rlimit_resource_t resource, const struct rlimit *limits, struct rlimit *before)
{
	if (limits != NULL) {
		becoming();
	}
	return (int)syscall(SYS_prlimit64, process, resource, limits, before);
}
EXPORT int prlimit64(pid_t process, __rlimit_resource_t resource, const struct rlimit64 *limits,
                     struct rlimit64 *before)
{
	return prlimit(process, resource, (const struct rlimit *)limits, (struct rlimit *)before);
}

EXPORT int personality(unsigned long persona)
{
	if (persona != 0xffffffff) {
		becoming();
	}
	return (int)syscall(SYS_personality, persona);
}

EXPORT int unshare(int what)
{
	becoming();
	return (int)syscall(SYS_unshare, what);
}

EXPORT int setpriority(__priority_which_t which, id_t who, int priority)
{
	becoming();
	return (int)syscall(SYS_setpriority, which, who, priority);
}

EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limits)
{
	becoming();
	return (int)syscall(SYS_prlimit64, 0, resource, limits, NULL);
}
EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limits)
{
	becoming();
	return (int)syscall(SYS_prlimit64, 0, resource, limits, NULL);
}

EXPORT int setpgid(pid_t process, pid_t group)
{
	becoming();
	return (int)syscall(SYS_setpgid, process, group);
}

EXPORT pid_t setsid(void)
{
	becoming();
	return (pid_t)syscall(SYS_setsid);
}

EXPORT int setuid(uid_t user)
{
	becoming();
	return (int)syscall(SYS_setuid, user);
}

EXPORT int seteuid(uid_t user)
{
	becoming();
	return (int)syscall(SYS_setresuid, -1, user, -1);
}

EXPORT int setgid(gid_t group)
{
	becoming();
	return (int)syscall(SYS_setgid, group);
}

EXPORT int setegid(gid_t group)
{
	becoming();
	return (int)syscall(SYS_setresgid, -1, group, -1);
}

EXPORT int setgroups(size_t count, const gid_t *groups)
{
	becoming();
	return (int)syscall(SYS_setgroups, count, groups);
}

EXPORT int nice(int by)
{
	int now = getpriority(PRIO_PROCESS, 0);
	return setpriority(PRIO_PROCESS, 0, now + by) == 0 ? getpriority(PRIO_PROCESS, 0) : -1;
}
