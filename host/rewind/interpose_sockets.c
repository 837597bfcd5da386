/*
 * Connections, pipes and queues of the kernel's that the boot opened: what is said to them cannot be taken back.
 */
#include "connections.h"
#include "interpose.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

static inline void using(int fd)
{
	struct control *c = watching();
	const struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d != NULL && d->peer) {
		connection_in_doubt();
	}
}

/* libc's own, looked up before the point. */
static FILE *(*libc_fdopen)(int, const char *);
static int (*libc_eventfd_write)(int, eventfd_t);
static int (*libc_eventfd_read)(int, eventfd_t *);
static int (*libc_tcsetattr)(int, int, const struct termios *);
static int (*libc_tcflush)(int, int);

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_fdopen = interpose_next("fdopen");
	*(void **)&libc_eventfd_write = interpose_next("eventfd_write");
	*(void **)&libc_eventfd_read = interpose_next("eventfd_read");
	*(void **)&libc_tcsetattr = interpose_next("tcsetattr");
	*(void **)&libc_tcflush = interpose_next("tcflush");
}

static inline bool kept(int fd)
{
	return connections_watching() && connections_keeps(fd);
}

/* What comes and goes on a connection that is kept is put back at both ends. */
static inline void reading(int fd)
{
	if (!kept(fd)) {
		using(fd);
	}
}

/* What passes a connection is told to those who may keep it. */
static ssize_t told(int fd, bool said, const void *bytes, ssize_t n)
{
	if (n > 0 && connections_watching()) {
		(said ? connections_said : connections_heard)(fd, bytes, (size_t)n);
	}
	return n;
}

static ssize_t told_parts(int fd, bool said, const struct iovec *parts, size_t count, ssize_t n)
{
	size_t rest = n > 0 && connections_watching() ? (size_t)n : 0;
	for (size_t i = 0; i < count && rest > 0; i++) {
		size_t part = parts[i].iov_len < rest ? parts[i].iov_len : rest;
		told(fd, said, parts[i].iov_base, (ssize_t)part);
		rest -= part;
	}
	return n;
}

/* A message that needs no answer leaves nothing behind here; whether there was an answer is seen when the work is over,
 * and before the first message of the next. */
static inline void sending(int fd)
{
	struct control *c = watching();
	if (c == NULL) {
		openings_wrote(fd);
	}
	struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d == NULL || !d->peer || kept(fd)) {
		if (d != NULL && !d->peer) {
			interpose_writing(fd);
		}
		return;
	}
	if (!d->datagram) {
		connection_in_doubt();
	} else if (!d->sent) {
		d->sent = c->any_sent = true;
		if (descriptors_was_answered(fd)) {
			connection_in_doubt();
		}
	}
}

/* Used in a way that is not told. */
static void unseen(int fd)
{
	if (connections_watching()) {
		connections_lost(fd, "it was used in a way that Hayate does not follow");
	}
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

EXPORT int eventfd_write(int fd, eventfd_t count)
{
	using(fd);
	return libc_eventfd_write(fd, count);
}

EXPORT int eventfd_read(int fd, eventfd_t *count)
{
	using(fd);
	return libc_eventfd_read(fd, count);
}

/* Settings of a terminal, and what waits in it. */
EXPORT int tcsetattr(int fd, int when, const struct termios *to)
{
	using(fd);
	return libc_tcsetattr(fd, when, to);
}

EXPORT int tcflush(int fd, int queue)
{
	using(fd);
	return libc_tcflush(fd, queue);
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
	if (connections_watching()) {
		connections_opened(fd);
	}
	return (int)syscall(SYS_connect, fd, to, len);
}

EXPORT int shutdown(int fd, int how)
{
	using(fd);
	unseen(fd);
	return (int)syscall(SYS_shutdown, fd, how);
}

EXPORT ssize_t read(int fd, void *to, size_t len)
{
	reading(fd);
	ssize_t n = syscall(SYS_read, fd, to, len);
	return told(fd, false, to, n);
}

EXPORT ssize_t write(int fd, const void *from, size_t len)
{
	sending(fd);
	ssize_t n = syscall(SYS_write, fd, from, len);
	return told(fd, true, from, n);
}

/* What libc reads and writes for a FILE passes by all of these. */
EXPORT FILE *fdopen(int fd, const char *mode)
{
	using(fd);
	unseen(fd);
	if (mode[0] != 'r' || strchr(mode, '+') != NULL) {
		interpose_writing(fd);
	}
	return libc_fdopen(fd, mode);
}

/* What glibc's headers make of calls with a room that is known (_FORTIFY_SOURCE). */
void __chk_fail(void) __attribute__((noreturn));
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *restrict, socklen_t *restrict);
EXPORT ssize_t __read_chk(int fd, void *to, size_t len, size_t room)
{
	if (len > room) {
		__chk_fail();
	}
	return read(fd, to, len);
}

int rewind_patience_ms;
bool rewind_lost_patience;

static int wait_for(struct pollfd *fds, nfds_t count, int ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};
	return (int)syscall(SYS_ppoll, fds, count, ms < 0 ? NULL : &time, NULL, 0);
}

EXPORT int poll(struct pollfd *fds, nfds_t count, int ms)
{
	int patience = rewind_patience_ms;
	if (patience == 0 || (ms >= 0 && ms <= patience)) {
		return wait_for(fds, count, ms);
	}
	int n = wait_for(fds, count, patience);
	if (n != 0) {
		return n;
	}
	for (nfds_t i = 0; i < count; i++) {
		struct stat st;
		if (fds[i].fd >= 0 && SYS2(SYS_fstat, fds[i].fd, &st) == 0 && S_ISSOCK(st.st_mode)) {
			shutdown(fds[i].fd, SHUT_RDWR);
			rewind_lost_patience = true;
		}
	}
	return wait_for(fds, count, ms < 0 ? ms : ms - patience);
}

/* What _FORTIFY_SOURCE makes of it. */
int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room);
EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room)
{
	if (room / sizeof *fds < count) {
		__chk_fail();
	}
	return poll(fds, count, ms);
}

EXPORT ssize_t readv(int fd, const struct iovec *parts, int count)
{
	reading(fd);
	return told_parts(fd, false, parts, count < 0 ? 0 : (size_t)count, syscall(SYS_readv, fd, parts, count));
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
	sending(fd);
	return told_parts(fd, true, parts, count < 0 ? 0 : (size_t)count, syscall(SYS_writev, fd, parts, count));
}

EXPORT ssize_t recv(int fd, void *to, size_t len, int flags)
{
	reading(fd);
	ssize_t n = syscall(SYS_recvfrom, fd, to, len, flags, NULL, NULL);
	return flags & MSG_PEEK ? n : told(fd, false, to, n);
}

EXPORT ssize_t recvfrom(int fd, void *to, size_t len, int flags, struct sockaddr *restrict from,
                        socklen_t *restrict from_len)
{
	reading(fd);
	ssize_t n = syscall(SYS_recvfrom, fd, to, len, flags, from, from_len);
	return flags & MSG_PEEK ? n : told(fd, false, to, n);
}

EXPORT ssize_t __recv_chk(int fd, void *to, size_t len, size_t room, int flags)
{
	if (len > room) {
		__chk_fail();
	}
	return recv(fd, to, len, flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *to, size_t len, size_t room, int flags, struct sockaddr *restrict from,
                              socklen_t *restrict from_len)
{
	if (len > room) {
		__chk_fail();
	}
	return recvfrom(fd, to, len, flags, from, from_len);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	reading(fd);
	ssize_t n = syscall(SYS_recvmsg, fd, message, flags);
	return flags & MSG_PEEK ? n : told_parts(fd, false, message->msg_iov, message->msg_iovlen, n);
}

EXPORT ssize_t send(int fd, const void *from, size_t len, int flags)
{
	sending(fd);
	return told(fd, true, from, syscall(SYS_sendto, fd, from, len, flags, NULL, 0));
}

EXPORT ssize_t sendto(int fd, const void *from, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	sending(fd);
	return told(fd, true, from, syscall(SYS_sendto, fd, from, len, flags, to, to_len));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	sending(fd);
	return told_parts(fd, true, message->msg_iov, message->msg_iovlen, syscall(SYS_sendmsg, fd, message, flags));
}

EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
	sending(fd);
	unseen(fd);
	return (int)syscall(SYS_sendmmsg, fd, messages, count, flags);
}

EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
	using(fd);
	unseen(fd);
	return (int)syscall(SYS_recvmmsg, fd, messages, count, flags, timeout);
}

EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t len)
{
	sending(to);
	using(from);
	return syscall(SYS_sendfile, to, from, at, len);
}
EXPORT ssize_t sendfile64(int to, int from, off64_t *at, size_t len) __attribute__((alias("sendfile")));

EXPORT ssize_t splice(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags)
{
	using(from);
	sending(to);
	return syscall(SYS_splice, from, from_at, to, to_at, len, flags);
}

EXPORT ssize_t tee(int from, int to, size_t len, unsigned flags)
{
	sending(to);
	return syscall(SYS_tee, from, to, len, flags);
}

EXPORT ssize_t vmsplice(int fd, const struct iovec *parts, size_t count, unsigned flags)
{
	using(fd);
	return syscall(SYS_vmsplice, fd, parts, count, flags);
}
