/*
 * Descriptors that are open at the point: what is known of each, its flags and its position, a copy by which one that
 * is closed comes back, and the numbers that were free.
 *
 * Promised: the rewinder's own are neither watched nor put back; what cannot be put back is in doubt.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct entry {
	uint64_t inode;
	int64_t offset;
	unsigned short length;
	unsigned char type;
	char name[];
};

/* Numbers of the open descriptors, ascending or not, in memory that rewinds leave alone. False when they cannot be
 * listed. */
static bool list_descriptors(int **list, size_t *count)
{
	long directory = SYS4(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (directory < 0) {
		return false;
	}
	_Alignas(8) char buffer[4096];
	size_t room = 0;
	long n;
	*list = NULL;
	/* Once to count them, and once to note them. */
	for (int pass = 0; pass < 2; pass++) {
		*count = 0;
		SYS3(SYS_lseek, directory, 0, SEEK_SET);
		while ((n = SYS3(SYS_getdents64, directory, buffer, sizeof buffer)) > 0) {
			for (long at = 0; at < n;) {
				const struct entry *entry = (const struct entry *)(const void *)(buffer + at);
				int fd = atoi(entry->name);
				if (entry->name[0] != '.' && fd != directory) {
					if (*count < room) {
						(*list)[*count] = fd;
					}
					(*count)++;
				}
				at += entry->length;
			}
		}
		if (pass == 0) {
			room = *count;
			*list = rewind_keep((room + 1) * sizeof **list);
		}
		if (n < 0 || *list == NULL) {
			break;
		}
	}
	SYS1(SYS_close, directory);
	return *list != NULL && n == 0 && *count == room;
}

static int highest(const int *list, size_t count)
{
	int found = -1;
	for (size_t i = 0; i < count; i++) {
		found = list[i] > found ? list[i] : found;
	}
	return found;
}

const char *rewind_libraries_opened(void)
{
	struct control *c = rewind_control;
	int *list;
	size_t count;
	if (!list_descriptors(&list, &count)) {
		return "/proc/self/fd cannot be read";
	}
	c->libraries_fd_count = (size_t)highest(list, count) + 1;
	c->libraries_fds = rewind_keep(c->libraries_fd_count + 1);
	if (c->libraries_fds == NULL) {
		return "no memory for the table of descriptors";
	}
	for (size_t i = 0; i < count; i++) {
		c->libraries_fds[list[i]] = true;
	}
	return openings_begin();
}

/*
 * An epoll, timerfd, signalfd, inotify or eventfd: what it was told, and what it has to tell, is kept by the kernel. So
 * it is by a terminal, and by any other device that is not plain memory (/dev/null, /dev/urandom: major number 1).
 */
static bool is_kernel_queue(int fd, const struct stat *st)
{
	char path[64], name[64];
	if (S_ISCHR(st->st_mode)) {
		return major(st->st_rdev) != 1;
	}
	if ((st->st_mode & S_IFMT) != 0) {
		return false;
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	long n = SYS4(SYS_readlinkat, AT_FDCWD, path, name, sizeof name - 1);
	name[n > 0 ? n : 0] = '\0';
	static const char *const queues[] = {"[eventpoll]", "[timerfd]", "[signalfd]", "inotify", "[eventfd]"};
	for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
		if (strstr(name, queues[i]) != NULL) {
			return true;
		}
	}
	return false;
}

static bool is_datagram_socket(int fd, const struct stat *st)
{
	int type = 0;
	socklen_t len = sizeof type;
	return S_ISSOCK(st->st_mode) && sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, (long)&type, (long)&len, 0) == 0 &&
	       type == SOCK_DGRAM;
}

static bool is_portless(int fd)
{
	struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
	socklen_t len = sizeof at;
	if (SYS3(SYS_getsockname, fd, &at, &len) != 0) {
		return false;
	}
	return at.ss_family == AF_INET    ? ((const struct sockaddr_in *)&at)->sin_port == 0
	       : at.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&at)->sin6_port == 0
	                                  : false;
}

/* The port that the kernel has given by itself goes with a connect() to nowhere; so would the device that a socket is
 * bound to. */
static bool let_port_go(int fd)
{
	char device[IFNAMSIZ];
	socklen_t len = sizeof device;
	const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	return sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_BINDTODEVICE, (long)device, (long)&len, 0) == 0 && len == 0 &&
	       SYS3(SYS_connect, fd, &nowhere, sizeof nowhere) == 0 && is_portless(fd);
}

/* Neither watched nor put back. */
static bool is_own(int fd)
{
	const struct control *c = rewind_control;
	return fd == c->kept_fd || fd == c->uffd || fd == c->pagemap || fd == c->clear_refs || fd == c->statm ||
	       fd == c->cwd;
}

bool rewind_is_output(const struct stat *st)
{
	struct stat own;
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (SYS2(SYS_fstat, fd, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino &&
		    own.st_rdev == st->st_rdev) {
			return true;
		}
	}
	return false;
}

/* NULL, or what is wrong with it. */
static const char *know(int fd)
{
	struct control *c = rewind_control;
	struct descriptor *d = &c->fds[fd];
	d->known = true;
	d->library = (size_t)fd < c->libraries_fd_count && c->libraries_fds[fd];
	d->cloexec = (SYS3(SYS_fcntl, fd, F_GETFD, 0) & FD_CLOEXEC) != 0;
	d->flags = (int)SYS3(SYS_fcntl, fd, F_GETFL, 0);
	struct stat st;
	if (fstat(fd, &st) != 0) {
		return NULL;
	}
	if (!held_note(fd, d)) {
		return "the boot holds more than 64 record locks on files";
	}
	/* Output and log go to whoever started us, and are meant to be used: also by a second descriptor (php://stderr). */
	d->peer = fd > STDERR_FILENO && !rewind_is_output(&st) &&
	          (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode) || (!d->library && is_kernel_queue(fd, &st)));
	d->datagram = is_datagram_socket(fd, &st);
	d->portless = d->datagram && is_portless(fd);
	for (size_t i = 0; i < c->watched_count; i++) {
		if (c->watched[i].device == st.st_dev && c->watched[i].inode == st.st_ino) {
			d->watched = (int)i + 1;
		}
	}
	long at = SYS3(SYS_lseek, fd, 0, SEEK_CUR);
	/* A memfd has no offset that anybody uses. */
	bool means_nothing = fd < MOST_POSITIONLESS && (c->positionless[fd / 8] & 1 << fd % 8);
	bool has_offset = fd > STDERR_FILENO && !is_own(fd) && !means_nothing && !rewind_is_memfd(fd);
	bool file = (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) && !(d->flags & O_PATH);
	/* Nor has what a library has for its locks alone, without name and content, as OPcache's. */
	has_offset = has_offset && !(d->library && S_ISREG(st.st_mode) && st.st_nlink == 0 && st.st_size == 0);
	if (has_offset && file && at >= 0) {
		c->offsets[c->offset_count].fd = fd;
		c->offsets[c->offset_count++].at = at;
	}
	return NULL;
}

/* The copies are known as well, but only after the loop: they need no copies. Whoever uses one uses the original.
 * False: no number is left (too many open files). What has no copy would keep its flags and, with forks, share its
 * position. */
static bool copy_descriptors(void)
{
	struct control *c = rewind_control;
	for (size_t fd = 0; fd < c->fd_count; fd++) {
		if (c->fds[fd].known && !is_own((int)fd)) {
			long copy = SYS3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, COPIES_FROM);
			if (copy < 0 || (size_t)copy >= c->fd_count) {
				SYS1(SYS_close, copy);
				return false;
			}
			c->fds[fd].copy = (int)copy;
		}
	}
	for (size_t fd = 0; fd < c->fd_count; fd++) {
		const struct descriptor *d = &c->fds[fd];
		if (d->copy != 0) {
			c->fds[d->copy] = (struct descriptor){
			    .known = true, .cloexec = true, .flags = d->flags, .peer = d->peer, .watched = d->watched};
		}
	}
	return true;
}

/* Those that were made; whoever runs without a snapshot needs the room. */
static void drop_copies(void)
{
	struct control *c = rewind_control;
	for (size_t fd = 0; fd < c->fd_count; fd++) {
		/* With one of a file its record locks would go. */
		if (c->fds[fd].copy != 0 && c->held_count == 0) {
			SYS1(SYS_close, c->fds[fd].copy);
			c->fds[fd].copy = 0;
		}
	}
}

/*
 * How many descriptors the kernel's table has room for; 0: that is not known. A rewind closes what a request left open,
 * and there the kernel looks at each number of the table, which takes it 10 ns.
 */
static size_t table_size(void)
{
	char text[2048];
	long fd = SYS4(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC, 0);
	long n = fd < 0 ? 0 : SYS3(SYS_read, fd, text, sizeof text - 1);
	if (fd >= 0) {
		SYS1(SYS_close, fd);
	}
	text[n > 0 ? n : 0] = '\0';
	const char *size = strstr(text, "\nFDSize:");
	return size == NULL ? 0 : strtoul(size + sizeof "\nFDSize:" - 1, NULL, 10);
}

/* So most numbers that are free are taken, by what nothing can be done with: that leaves fewer to look at. With
 * LEFT_FREE descriptors of its own at one time, and each below the table's end, a request makes the table no larger. */
#define LEFT_FREE 12
#define LARGEST_TABLE 256
static void fill_table(size_t size)
{
	struct control *c = rewind_control;
	struct rlimit most;
	if (c->cwd < 0 || size > LARGEST_TABLE || getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur < 2 * size) {
		return;
	}
	for (size_t fd = 0; fd + LEFT_FREE < size; fd++) {
		if (!c->fds[fd].known) {
			if (SYS3(SYS_dup3, c->cwd, fd, O_CLOEXEC) < 0) {
				return;
			}
			int flags = (int)SYS3(SYS_fcntl, fd, F_GETFL, 0);
			c->fds[fd] = (struct descriptor){.known = true, .cloexec = true, .flags = flags, .copy = c->cwd};
		}
	}
}

static void find_gaps(void)
{
	struct control *c = rewind_control;
	c->gap_count = 0;
	size_t fd = 0;
	while (fd < c->fd_count) {
		while (fd < c->fd_count && c->fds[fd].known) {
			fd++;
		}
		size_t start = fd;
		while (fd < c->fd_count && !c->fds[fd].known) {
			fd++;
		}
		if (start < fd) {
			c->gaps[c->gap_count++] = (struct rewind_range){start, fd};
		}
	}
	/* The last entry is never in use (see descriptors_note()), so the last gap is the one without end. */
	c->gaps[c->gap_count - 1].end = UINT32_MAX;
}

/* Fills the table of descriptors, which has room for a copy of each. NULL, or what failed. */
const char *descriptors_note(void)
{
	struct control *c = rewind_control;
	int *list;
	size_t count;
	if (!list_descriptors(&list, &count)) {
		return "/proc/self/fd cannot be read";
	}
	size_t high = (size_t)highest(list, count) + 1, size = table_size();
	c->fd_count = high + COPIES_FROM + count + 2;
	c->fd_count = c->fd_count < size ? size : c->fd_count;
	c->fds = rewind_keep(c->fd_count * sizeof *c->fds);
	c->offsets = rewind_keep((count + 1) * sizeof *c->offsets);
	c->gaps = rewind_keep((c->fd_count / 2 + 1) * sizeof *c->gaps);
	c->offset_count = c->held_count = 0;
	c->any_lost = c->any_unknown = c->any_locked = c->any_flags = c->any_cloexec = c->any_sent = c->any_duplicate =
	    c->locked_other = c->ending = false;
	if (c->fds == NULL || c->offsets == NULL || c->gaps == NULL) {
		c->fd_count = 0;
		return "no memory for the table of descriptors";
	}
	for (size_t i = 0; i < count; i++) {
		const char *wrong = know(list[i]);
		if (wrong != NULL) {
			return wrong;
		}
	}
	if (!copy_descriptors()) {
		drop_copies();
		return "no descriptor is left for the second one that is kept of each; raise the limit of open files "
		       "(LimitNOFILE)";
	}
	if (c->shadow != NULL) {
		fill_table(size);
	}
	find_gaps();
	return NULL;
}

void rewind_positionless(int fd, bool is)
{
	struct control *c = rewind_control;
	if (c != NULL && fd >= 0 && fd < MOST_POSITIONLESS) {
		uint8_t bit = (uint8_t)(1 << fd % 8);
		c->positionless[fd / 8] = (uint8_t)(is ? c->positionless[fd / 8] | bit : c->positionless[fd / 8] & ~bit);
	}
}

/*
 * Whether something has come in by a datagram socket of the boot: an answer to a message of a request. It is taken out,
 * since it is not for the request that would find it. An error that a message met (nobody listens) goes with the look;
 * the next one to send would be told.
 */
bool descriptors_was_answered(int fd)
{
	bool answered = false;
	for (int looks = 0; looks < 1024; looks++) {
		char byte;
		long n = sys6(SYS_recvfrom, fd, (long)&byte, 1, MSG_DONTWAIT, 0, 0);
		if (n == -EAGAIN) {
			break;
		}
		answered |= n >= 0;
	}
	return answered;
}

bool descriptors_was_any_answered(void)
{
	struct control *c = rewind_control;
	bool answered = false;
	for (size_t fd = 0; fd < c->fd_count; fd++) {
		if (c->fds[fd].sent) {
			c->fds[fd].sent = false;
			answered |= !c->fds[fd].lost && descriptors_was_answered((int)fd);
			answered |= !c->fds[fd].lost && c->fds[fd].portless && !let_port_go((int)fd);
		}
	}
	c->any_sent = false;
	return answered;
}

void descriptors_restore_flags(bool of_files, bool of_descriptors)
{
	const struct control *c = rewind_control;
	for (size_t fd = 0; fd < c->fd_count; fd++) {
		const struct descriptor *d = &c->fds[fd];
		if (!d->known || d->lost) {
			continue;
		}
		/* A copy's file is the original's. */
		if (of_files && d->copy != 0 && SYS3(SYS_fcntl, fd, F_GETFL, 0) != d->flags) {
			SYS3(SYS_fcntl, fd, F_SETFL, d->flags);
		}
		if (of_descriptors && (SYS3(SYS_fcntl, fd, F_GETFD, 0) & FD_CLOEXEC) != d->cloexec) {
			SYS3(SYS_fcntl, fd, F_SETFD, d->cloexec ? FD_CLOEXEC : 0);
		}
	}
}

int rewind_own_file(int fd)
{
	struct stat st;
	long error = SYS2(SYS_fstat, fd, &st);
	if (error != 0) {
		return (int)-error;
	}
	if (S_ISFIFO(st.st_mode)) {
		return ESPIPE; /* to open it might wait for somebody at its other end */
	}
	long flags = SYS3(SYS_fcntl, fd, F_GETFL, 0), keep = SYS3(SYS_fcntl, fd, F_GETFD, 0);
	long at = SYS3(SYS_lseek, fd, 0, SEEK_CUR);
	flags &= O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_DIRECT | O_NOATIME;
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	long again = SYS4(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | (S_ISDIR(st.st_mode) ? O_DIRECTORY : 0), 0);
	if (again < 0) {
		return (int)-again;
	}
	if (S_ISDIR(st.st_mode) && at != 0) {
		/* ext4 takes a directory whose position was set to the end before anything was read for one without entries,
		 * even after the position was set back: so something is read first, as whoever was at that place had. */
		_Alignas(8) char buffer[32768];
		SYS3(SYS_getdents64, again, buffer, sizeof buffer);
	}
	long sought = SYS3(SYS_lseek, again, at, SEEK_SET);
	long placed = sought == at ? SYS3(SYS_dup3, again, fd, keep & FD_CLOEXEC ? O_CLOEXEC : 0) : -1;
	SYS1(SYS_close, again);
	return placed >= 0 ? 0 : sought == at ? (int)-placed : sought < 0 ? (int)-sought : EINVAL;
}

int rewind_replace_file(int fd, const char *name, int flags)
{
	const struct control *c = rewind_control;
	const struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	for (size_t i = 0; c != NULL && i < c->held_count; i++) {
		if (c->held[i].fd == fd) {
			return EBUSY;
		}
	}
	long at = SYS3(SYS_lseek, fd, 0, SEEK_CUR);
	long cloexec = SYS3(SYS_fcntl, fd, F_GETFD, 0) & FD_CLOEXEC;
	struct stat st;
	/* Made anew it is for those that the one before was for, not for all. */
	mode_t mode = fstat(fd, &st) == 0 ? st.st_mode & 0666 : 0600;
	/* A pipe would wait for somebody who reads it. */
	long again = SYS4(SYS_openat, AT_FDCWD, name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
	if (again < 0) {
		return (int)-again;
	}
	if (fstat((int)again, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISCHR(st.st_mode))) {
		SYS1(SYS_close, again);
		return EINVAL;
	}
	SYS3(SYS_fcntl, again, F_SETFL, flags);
	SYS3(SYS_lseek, again, at, SEEK_SET);
	long placed = SYS3(SYS_dup3, again, fd, cloexec ? O_CLOEXEC : 0);
	if (placed >= 0 && d != NULL && d->copy != 0) {
		placed = SYS3(SYS_dup3, again, d->copy, O_CLOEXEC);
	}
	SYS1(SYS_close, again);
	return placed < 0 ? (int)-placed : 0;
}

bool descriptors_own_files(void)
{
	const struct control *c = rewind_control;
	for (size_t i = 0; i < c->offset_count; i++) {
		int fd = c->offsets[i].fd;
		if (!is_own(fd) && c->fds[fd].copy != 0 &&
		    (SYS3(SYS_lseek, fd, c->offsets[i].at, SEEK_SET) < 0 || rewind_own_file(fd) != 0)) {
			return false;
		}
	}
	return true;
}

void descriptors_restore(void)
{
	struct control *c = rewind_control;
	c->ending = false;
	for (size_t i = 0; i < c->gap_count; i++) {
		SYS3(SYS_close_range, c->gaps[i].start, c->gaps[i].end - 1, 0);
	}
	if (c->any_lost || c->any_unknown) {
		for (size_t fd = 0; fd < c->fd_count; fd++) {
			struct descriptor *d = &c->fds[fd];
			if (d->lost || (c->any_unknown && d->known && d->copy != 0)) {
				d->lost = false;
				if (d->copy == 0 || SYS3(SYS_dup3, d->copy, fd, d->cloexec ? O_CLOEXEC : 0) < 0) {
					c->doubt_after = REWIND_DESCRIPTORS;
				}
			}
		}
		c->any_lost = c->any_unknown = false;
	}
}

void descriptors_restore_files(void)
{
	struct control *c = rewind_control;
	if (c->any_flags || c->any_cloexec) {
		descriptors_restore_flags(c->any_flags, c->any_cloexec);
		c->any_flags = c->any_cloexec = false;
	}
	for (size_t i = 0; i < c->offset_count; i++) {
		SYS3(SYS_lseek, c->offsets[i].fd, c->offsets[i].at, SEEK_SET);
	}
}
