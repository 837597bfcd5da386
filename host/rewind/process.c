/*
 * What the kernel keeps for a process besides its memory: descriptors, working directory, umask, signals, timers,
 * threads, children, libraries. Noted at the point, put back by each rewind, or found to be in doubt.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
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
	return NULL;
}

/* The number after `*at`, which is moved behind it; -1 when there is none. */
static int64_t number(const char **at)
{
	while (**at == ' ') {
		(*at)++;
	}
	if (**at < '0' || **at > '9') {
		return -1;
	}
	int64_t value = 0;
	for (; **at >= '0' && **at <= '9'; (*at)++) {
		value = value * 10 + (**at - '0');
	}
	return value;
}

/*
 * What locks this process holds by a descriptor, as fdinfo says it (Documentation/filesystems/proc.rst):
 *
 *   lock:	1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF
 *
 * Record locks (POSIX, OFDLCK) are noted. False when there are more than can be.
 */
static bool note_locks(int fd, struct descriptor *to)
{
	struct control *c = rewind_control;
	char text[4096], path[64];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	long info = SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	long n = info < 0 ? -1 : SYS3(SYS_read, info, text, sizeof text - 1);
	if (info >= 0) {
		SYS1(SYS_close, info);
	}
	text[n > 0 ? n : 0] = '\0';
	for (const char *line = text; (line = strstr(line, "\nlock:")) != NULL;) {
		line++;
		to->held = true;
		size_t len = strcspn(line, "\n");
		char one[256];
		snprintf(one, sizeof one, "%.*s", (int)len, line);
		to->flocked |= strstr(one, "FLOCK") != NULL;
		bool open_file = strstr(one, "OFDLCK") != NULL;
		const char *range = strrchr(one, ':');
		if (to->library || range == NULL || !(open_file || strstr(one, "POSIX") != NULL)) {
			continue;
		}
		range++;
		(void)number(&range); /* inode */
		int64_t start = number(&range), last = number(&range);
		if (c->held_count == MAX_HELD || start < 0) {
			return false;
		}
		c->held[c->held_count++] = (struct held){.fd = fd,
		                                         .type = strstr(one, "WRITE") != NULL ? F_WRLCK : F_RDLCK,
		                                         .start = start,
		                                         .end = last < 0 ? INT64_MAX : last + 1,
		                                         .open_file = open_file};
	}
	return n < (long)sizeof text - 1;
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
	if (!note_locks(fd, d)) {
		return "the boot holds more than 64 record locks on files";
	}
	/* Output and log go to whoever started us, and are meant to be used: also by a second descriptor (php://stderr). */
	d->peer = fd > STDERR_FILENO && !rewind_is_output(&st) &&
	          (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode) || (!d->library && is_kernel_queue(fd, &st)));
	d->datagram = is_datagram_socket(fd, &st);
	d->portless = d->datagram && is_portless(fd);
	long at = SYS3(SYS_lseek, fd, 0, SEEK_CUR);
	/* A memfd has no offset that anybody uses. */
	bool has_offset = fd > STDERR_FILENO && !is_own(fd) && fd != c->positionless && !rewind_is_memfd(fd);
	bool file = (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) && !(d->flags & O_PATH);
	/* Nor has what a library has for its locks alone, without name and content, as OPcache's. */
	has_offset = has_offset && !(d->library && S_ISREG(st.st_mode) && st.st_nlink == 0 && st.st_size == 0);
	if (has_offset && file && at >= 0) {
		c->offsets[c->offset_count].fd = fd;
		c->offsets[c->offset_count++].at = at;
	}
	return NULL;
}

static int libraries(struct dl_phdr_info *info, size_t size, void *to)
{
	unsigned long long *counts = to;
	counts[0] = info->dlpi_adds;
	counts[1] = info->dlpi_subs;
	return 1; /* the counts are the same in every entry */
}

/* The copies are known as well, but only after the loop: they need no copies. Whoever uses one uses the original. */
static void copy_descriptors(void)
{
	struct control *c = rewind_control;
	for (size_t fd = 0; fd < c->fd_count; fd++) {
		if (c->fds[fd].known && !is_own((int)fd)) {
			long copy = SYS3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, COPIES_FROM);
			/* Without a copy (too many open files) one that is closed is in doubt. */
			c->fds[fd].copy = copy > 0 && (size_t)copy < c->fd_count ? (int)copy : 0;
		}
	}
	for (size_t fd = 0; fd < c->fd_count; fd++) {
		const struct descriptor *d = &c->fds[fd];
		if (d->copy != 0) {
			c->fds[d->copy] = (struct descriptor){.known = true, .cloexec = true, .flags = d->flags, .peer = d->peer};
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
	/* The last entry is never in use (see know_descriptors), so the last gap is the one without end. */
	c->gaps[c->gap_count - 1].end = UINT32_MAX;
}

/* Fills the table of descriptors, which has room for a copy of each. NULL, or what failed. */
static const char *know_descriptors(void)
{
	struct control *c = rewind_control;
	int *list;
	size_t count;
	if (!list_descriptors(&list, &count)) {
		return "/proc/self/fd cannot be read";
	}
	size_t high = (size_t)highest(list, count) + 1;
	c->fd_count = high + COPIES_FROM + count + 2;
	c->fds = rewind_keep(c->fd_count * sizeof *c->fds);
	c->offsets = rewind_keep((count + 1) * sizeof *c->offsets);
	c->gaps = rewind_keep((c->fd_count / 2 + 1) * sizeof *c->gaps);
	c->offset_count = c->held_count = 0;
	c->any_lost = c->any_unknown = c->any_locked = c->any_flags = c->any_cloexec = c->any_sent = c->any_duplicate =
	    c->locked_other = false;
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
	copy_descriptors();
	find_gaps();
	return NULL;
}

void rewind_positionless(int fd)
{
	if (rewind_control != NULL) {
		rewind_control->positionless = fd;
	}
}

const char *process_note(void)
{
	struct control *c = rewind_control;
	c->cwd = (int)SYS4(SYS_openat, AT_FDCWD, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	c->umask = (int)SYS1(SYS_umask, 0);
	SYS1(SYS_umask, c->umask);
	const char *wrong = know_descriptors();
	if (wrong != NULL) {
		return wrong;
	}
	SYS4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &c->signal_mask, sizeof c->signal_mask);
	for (int i = 1; i <= MAX_SIGNALS; i++) {
		SYS4(SYS_rt_sigaction, i, NULL, &c->actions[i], sizeof c->signal_mask);
	}
	c->single_threaded = __libc_single_threaded;
	c->actions_changed = 0;
	c->undo_count = 0;
	c->directory_changed = c->umask_changed = c->name_changed = c->slack_changed = false;
	SYS2(SYS_prctl, PR_GET_NAME, c->name);
	c->slack = (unsigned long)SYS1(SYS_prctl, PR_GET_TIMERSLACK);
	c->timers_set = 0;
	c->timers_made = 0;
	SYS2(SYS_sigaltstack, NULL, &c->signal_stack);
	unsigned long long counts[2] = {0, 0};
	dl_iterate_phdr(libraries, counts);
	c->libraries_added = counts[0];
	c->libraries_removed = counts[1];
	c->libraries_used = false;
	return NULL;
}

size_t rewind_semaphores(struct rewind_semaphore *to, size_t room)
{
	const struct control *c = rewind_control;
	size_t count = 0;
	for (size_t i = 0; i < c->undo_count && count < room; i++) {
		if (c->undo[i].sum != 0) {
			to[count++] = (struct rewind_semaphore){c->undo[i].set, c->undo[i].number, c->undo[i].sum};
		}
	}
	return count;
}

int rewind_threads(void)
{
	struct stat st;
	/* One link for each thread, two for the directory itself. */
	return stat("/proc/self/task", &st) == 0 ? (int)st.st_nlink - 2 : 0;
}

/*
 * Whether something has come in by a datagram socket of the boot: an answer to a message of a request. It is taken out,
 * since it is not for the request that would find it. An error that a message met (nobody listens) goes with the look;
 * the next one to send would be told.
 */
bool process_was_answered(int fd)
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

static bool was_any_answered(void)
{
	struct control *c = rewind_control;
	bool answered = false;
	for (size_t fd = 0; fd < c->fd_count; fd++) {
		if (c->fds[fd].sent) {
			c->fds[fd].sent = false;
			answered |= !c->fds[fd].lost && process_was_answered((int)fd);
			answered |= !c->fds[fd].lost && c->fds[fd].portless && !let_port_go((int)fd);
		}
	}
	c->any_sent = false;
	return answered;
}

enum rewind_doubt process_doubt(void)
{
	struct control *c = rewind_control;
	if (c->any_sent && was_any_answered()) {
		return REWIND_CONNECTION;
	}
	if (c->timers_made != 0) {
		return REWIND_PROCESS;
	}
	/* libc starts threads by itself, too: getaddrinfo_a(), timers. It notes that there have been some. */
	if (c->threads_started || (c->single_threaded && !__libc_single_threaded)) {
		c->faults = UINT64_MAX; /* theirs were not counted */
		/* A thread that is about to end gets a moment: curl's resolver ends just after its handle. */
		for (int i = 0; rewind_threads() != 1; i++) {
			if (i == 20) {
				return REWIND_THREADS;
			}
			nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
		}
		c->threads_started = false;
		c->must_sweep = true; /* libc kept their stacks for the next thread */
	}
	return c->libraries_used && process_lost_library() ? REWIND_LIBRARY : REWIND_SURE;
}

bool process_left_child(void)
{
	long child;
	do {
		/* Reaps what has ended; ECHILD is the usual answer. */
		child = SYS4(SYS_wait4, -1, NULL, WNOHANG | __WALL, NULL);
	} while (child > 0);
	return child == 0;
}

bool process_lost_library(void)
{
	struct control *c = rewind_control;
	unsigned long long counts[2] = {0, 0};
	c->libraries_used = false;
	dl_iterate_phdr(libraries, counts);
	if (counts[0] != c->libraries_added) {
		c->must_sweep = true; /* rolled back, it is known to nobody */
	}
	return counts[1] - c->libraries_removed > counts[0] - c->libraries_added;
}

void process_restore_flags(bool of_files, bool of_descriptors)
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

bool process_own_files(void)
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

/* Gives up all record locks on a file but those held at the point, as the kernel does when a process ends. `through` is
 * the descriptor, or the copy of one that was closed. */
static void unlock(int fd, int through)
{
	const struct control *c = rewind_control;
	for (int64_t from = 0; from != INT64_MAX;) {
		int64_t to = INT64_MAX, next = INT64_MAX;
		for (size_t i = 0; i < c->held_count; i++) {
			if (c->held[i].fd == fd && c->held[i].end > from && c->held[i].start < to) {
				to = c->held[i].start;
				next = c->held[i].end;
			}
		}
		if (to > from) {
			struct flock gap = {
			    .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = to == INT64_MAX ? 0 : to - from};
			SYS3(SYS_fcntl, through, F_SETLK, &gap);
			SYS3(SYS_fcntl, through, F_OFD_SETLK, &gap);
		}
		from = next;
	}
}

/* Up to where a lock reaches that holds this byte, by what the kernel says of the descriptor; 0: none does. */
static int64_t locked_up_to(const char *text, int64_t byte)
{
	for (const char *line = text; (line = strstr(line, "\nlock:")) != NULL;) {
		line++;
		const char *end = strchr(line, '\n'), *range = end;
		while (range != NULL && range > line && range[-1] != ':') {
			range--;
		}
		if (range == NULL || range == line) {
			return 0;
		}
		(void)number(&range); /* inode */
		int64_t start = number(&range), last = number(&range);
		if (start >= 0 && start <= byte && (last < 0 || last >= byte)) {
			return last < 0 ? INT64_MAX : last + 1;
		}
	}
	return 0;
}

/* Each byte of it, by one lock or by several: one that is stronger in its middle has divided it. */
static bool is_held(const char *text, const struct held *held)
{
	int64_t at = held->start;
	do {
		at = locked_up_to(text, at);
	} while (at != 0 && at < held->end);
	return at != 0;
}

/*
 * Record locks that were held at the point. The kernel takes those of a process from it when it closes any descriptor
 * of the same file: they are taken again, but somebody else may have had them meanwhile, and changed what they stand
 * for. One that is stronger now becomes what it was.
 */
static void restore_held(void)
{
	struct control *c = rewind_control;
	char text[4096], path[64];
	int read_of = -1;
	for (size_t i = 0; i < c->held_count; i++) {
		const struct held *held = &c->held[i];
		if (held->fd != read_of) {
			snprintf(path, sizeof path, "/proc/self/fdinfo/%d", held->fd);
			long info = SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
			long n = info < 0 ? -1 : SYS3(SYS_read, info, text, sizeof text - 1);
			text[n > 0 ? n : 0] = '\0';
			SYS1(SYS_close, info);
			read_of = held->fd;
		}
		struct flock again = {.l_type = held->type,
		                      .l_whence = SEEK_SET,
		                      .l_start = held->start,
		                      .l_len = held->end == INT64_MAX ? 0 : held->end - held->start};
		bool lost = !is_held(text, held);
		if (SYS3(SYS_fcntl, held->fd, held->open_file ? F_OFD_SETLK : F_SETLK, &again) != 0 || lost) {
			c->doubt_after = REWIND_DESCRIPTORS;
		}
	}
}

void rewind_unlock(void)
{
	struct control *c = rewind_control;
	/* A descriptor 0 is standard input: where there is no copy, nothing that matters is unlocked. */
	if (c->any_locked) {
		for (size_t fd = 0; fd < c->fd_count; fd++) {
			struct descriptor *d = &c->fds[fd];
			int through = d->lost ? d->copy : (int)fd;
			if (d->locked) {
				d->locked = false;
				unlock((int)fd, through);
				if (!d->flocked) {
					SYS2(SYS_flock, through, LOCK_UN);
				}
			}
		}
		c->any_locked = false;
	}
	if (c->any_duplicate && c->locked_other) {
		/* What a duplicate locked is locked until the original says otherwise. */
		for (size_t fd = 0; fd < c->fd_count; fd++) {
			const struct descriptor *d = &c->fds[fd];
			int through = d->lost ? d->copy : (int)fd;
			if (d->known && !d->held) {
				struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
				SYS3(SYS_fcntl, through, F_OFD_SETLK, &all);
				SYS2(SYS_flock, through, LOCK_UN);
			}
		}
	}
	c->any_duplicate = c->locked_other = false;
	while (c->undo_count > 0) {
		c->undo_count--;
		short sum = c->undo[c->undo_count].sum;
		if (sum != 0) {
			/* It fails when the set is gone, or was taken by others meanwhile: then there is nothing to undo. */
			struct sembuf back = {.sem_num = (unsigned short)c->undo[c->undo_count].number,
			                      .sem_op = (short)-sum,
			                      .sem_flg = SEM_UNDO | IPC_NOWAIT};
			SYS3(SYS_semop, c->undo[c->undo_count].set, &back, 1);
		}
	}
}

/* During the rollback. */
void process_restore(void)
{
	struct control *c = rewind_control;
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
	rewind_unlock();
	restore_held();
	if (c->any_flags || c->any_cloexec) {
		process_restore_flags(c->any_flags, c->any_cloexec);
		c->any_flags = c->any_cloexec = false;
	}
	for (size_t i = 0; i < c->offset_count; i++) {
		SYS3(SYS_lseek, c->offsets[i].fd, c->offsets[i].at, SEEK_SET);
	}
	if (c->directory_changed) {
		c->directory_changed = false;
		if (c->cwd < 0 || SYS1(SYS_fchdir, c->cwd) != 0) {
			c->doubt_after = REWIND_DESCRIPTORS;
		}
	}
	if (c->name_changed) {
		c->name_changed = false;
		SYS2(SYS_prctl, PR_SET_NAME, c->name);
	}
	if (c->slack_changed) {
		c->slack_changed = false;
		SYS2(SYS_prctl, PR_SET_TIMERSLACK, c->slack);
	}
	if (c->umask_changed) {
		c->umask_changed = false;
		SYS1(SYS_umask, c->umask);
	}
	while (c->actions_changed != 0) {
		int signal = __builtin_ctzll(c->actions_changed) + 1;
		c->actions_changed &= c->actions_changed - 1;
		SYS4(SYS_rt_sigaction, signal, &c->actions[signal], NULL, sizeof c->signal_mask);
	}
	if (c->signal_stack_changed) {
		c->signal_stack_changed = false;
		SYS2(SYS_sigaltstack, &c->signal_stack, NULL);
	}
	while (c->timers_set != 0) {
		int timer = __builtin_ctz(c->timers_set);
		c->timers_set &= (uint8_t)(c->timers_set - 1);
		struct itimerval none = {0};
		SYS3(SYS_setitimer, timer, &none, NULL);
	}
}
