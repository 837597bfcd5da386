/*
 * What the kernel keeps for a process besides its memory: descriptors, working directory, umask, signals, timers,
 * threads, children, libraries. Noted at the point, put back by each rewind, or found to be in doubt.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sem.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
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

/* Calls visit for each open descriptor. False when they cannot be listed. */
static bool each_descriptor(void (*visit)(int fd))
{
	long directory = SYS4(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (directory < 0) {
		return false;
	}
	_Alignas(8) char buffer[4096];
	int list[MAX_FDS + 1];
	int count = 0;
	long n;
	while ((n = SYS3(SYS_getdents64, directory, buffer, sizeof buffer)) > 0) {
		for (long at = 0; at < n;) {
			const struct entry *entry = (const struct entry *)(const void *)(buffer + at);
			int fd = atoi(entry->name);
			if (entry->name[0] != '.' && fd != directory && count <= MAX_FDS) {
				list[count++] = fd;
			}
			at += entry->length;
		}
	}
	SYS1(SYS_close, directory);
	for (int i = 0; i < count; i++) {
		visit(list[i]);
	}
	return n == 0 && count <= MAX_FDS;
}

/* Whether this process or descriptor holds a lock: Documentation/filesystems/proc.rst, fdinfo. */
static bool holds_lock(int fd)
{
	char text[2048];
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	long info = SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	long n = info < 0 ? -1 : SYS3(SYS_read, info, text, sizeof text - 1);
	if (info >= 0) {
		SYS1(SYS_close, info);
	}
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, "\nlock:") != NULL;
}

/*
 * An epoll, timerfd, signalfd or inotify: what it was told, and what it has to tell, is kept by the kernel. An eventfd
 * is left out, since those who wait for one do so by an epoll; and the caller's own is one.
 */
static bool is_kernel_queue(int fd, const struct stat *st)
{
	char path[64], name[64];
	if ((st->st_mode & S_IFMT) != 0) {
		return false;
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	long n = SYS4(SYS_readlinkat, AT_FDCWD, path, name, sizeof name - 1);
	name[n > 0 ? n : 0] = '\0';
	static const char *const queues[] = {"[eventpoll]", "[timerfd]", "[signalfd]", "inotify"};
	for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
		if (strstr(name, queues[i]) != NULL) {
			return true;
		}
	}
	return false;
}

static bool too_high;

static void know(int fd)
{
	struct control *c = rewind_control;
	if (fd >= MAX_FDS) {
		too_high = true;
		return;
	}
	c->known_fd[fd] = true;
	c->cloexec[fd] = (SYS3(SYS_fcntl, fd, F_GETFD, 0) & FD_CLOEXEC) != 0;
	c->flags_of[fd] = (int)SYS3(SYS_fcntl, fd, F_GETFL, 0);
	struct stat st;
	if (fstat(fd, &st) != 0) {
		return;
	}
	/* Output and log go to whoever started us, and are meant to be used. */
	c->held_fd[fd] = holds_lock(fd);
	c->peer_fd[fd] = fd > STDERR_FILENO && (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode) || is_kernel_queue(fd, &st));
	long at = SYS3(SYS_lseek, fd, 0, SEEK_CUR);
	/* A memfd has no offset that anybody uses. */
	bool has_offset = fd > STDERR_FILENO && !rewind_is_memfd(fd);
	bool file = (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) && !(c->flags_of[fd] & (O_APPEND | O_PATH));
	if (has_offset && file && at >= 0 && c->offset_count < MAX_FILES) {
		c->offsets[c->offset_count].fd = fd;
		c->offsets[c->offset_count++].at = at;
	}
}

static int libraries(struct dl_phdr_info *info, size_t size, void *to)
{
	unsigned long long *counts = to;
	counts[0] = info->dlpi_adds;
	counts[1] = info->dlpi_subs;
	return 1; /* the counts are the same in every entry */
}

/* Neither watched nor put back. */
static bool is_own(int fd)
{
	const struct control *c = rewind_control;
	return fd == c->kept_fd || fd == c->uffd || fd == c->pagemap || fd == c->clear_refs || fd == c->statm ||
	       fd == c->cwd;
}

/* The copies are known as well, but only after the loop: they need no copies. */
static void copy_descriptors(void)
{
	struct control *c = rewind_control;
	for (int fd = 0; fd < MAX_FDS; fd++) {
		if (c->known_fd[fd] && !is_own(fd)) {
			long copy = SYS3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, COPIES_FROM);
			c->copy_of[fd] = copy > 0 && copy < MAX_FDS ? (int)copy : 0;
		}
	}
	for (int fd = 0; fd < MAX_FDS; fd++) {
		if (c->copy_of[fd] != 0) {
			c->known_fd[c->copy_of[fd]] = true;
		}
	}
}

static void find_gaps(void)
{
	struct control *c = rewind_control;
	c->gap_count = 0;
	int fd = 0;
	while (fd < MAX_FDS) {
		while (fd < MAX_FDS && c->known_fd[fd]) {
			fd++;
		}
		int start = fd;
		while (fd < MAX_FDS && !c->known_fd[fd]) {
			fd++;
		}
		if (start < fd) {
			c->gaps[c->gap_count++] =
			    (struct rewind_range){(uintptr_t)start, fd == MAX_FDS ? UINT32_MAX : (uintptr_t)fd};
		}
	}
}

const char *process_note(void)
{
	struct control *c = rewind_control;
	c->cwd = (int)SYS4(SYS_openat, AT_FDCWD, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	c->umask = (int)SYS1(SYS_umask, 0);
	SYS1(SYS_umask, c->umask);
	memset(c->known_fd, 0, sizeof c->known_fd);
	memset(c->copy_of, 0, sizeof c->copy_of);
	memset(c->peer_fd, 0, sizeof c->peer_fd);
	memset(c->held_fd, 0, sizeof c->held_fd);
	memset(c->lock_fd, 0, sizeof c->lock_fd);
	c->any_lock = c->any_flags = false;
	c->offset_count = 0;
	if (!each_descriptor(know)) {
		return "/proc/self/fd cannot be read, or there are more than 1024 descriptors";
	}
	if (too_high) {
		return "there is a descriptor above 1023, which the rewinder does not keep";
	}
	copy_descriptors();
	find_gaps();
	SYS4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &c->signal_mask, sizeof c->signal_mask);
	for (int i = 1; i <= MAX_SIGNALS; i++) {
		SYS4(SYS_rt_sigaction, i, NULL, &c->actions[i], sizeof c->signal_mask);
	}
	c->single_threaded = __libc_single_threaded;
	c->actions_changed = 0;
	c->undo_count = 0;
	c->directory_changed = c->umask_changed = false;
	c->timers_set = 0;
	unsigned long long counts[2] = {0, 0};
	dl_iterate_phdr(libraries, counts);
	c->libraries_added = counts[0];
	c->libraries_removed = counts[1];
	return NULL;
}

int rewind_threads(void)
{
	struct stat st;
	/* One link for each thread, two for the directory itself. */
	return stat("/proc/self/task", &st) == 0 ? (int)st.st_nlink - 2 : 0;
}

enum rewind_doubt process_doubt(void)
{
	struct control *c = rewind_control;
	/* libc starts threads by itself, too: getaddrinfo_a(), timers. It notes that there have been some. */
	if (c->threads_started || (c->single_threaded && !__libc_single_threaded)) {
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
	for (;;) {
		/* Reaps what has ended; ECHILD is the usual answer. */
		long child = SYS4(SYS_wait4, -1, NULL, WNOHANG | __WALL, NULL);
		if (child == 0) {
			return REWIND_CHILD;
		}
		if (child < 0) {
			break;
		}
	}
	unsigned long long counts[2] = {0, 0};
	dl_iterate_phdr(libraries, counts);
	if (counts[0] != c->libraries_added) {
		c->must_sweep = true; /* rolled back, it is known to nobody */
	}
	if (counts[1] - c->libraries_removed > counts[0] - c->libraries_added) {
		return REWIND_LIBRARY;
	}
	return REWIND_SURE;
}

void process_restore_flags(void)
{
	const struct control *c = rewind_control;
	for (int fd = 0; fd < MAX_FDS; fd++) {
		if (!c->known_fd[fd] || c->copy_of[fd] == 0) {
			continue;
		}
		if (SYS3(SYS_fcntl, fd, F_GETFL, 0) != c->flags_of[fd]) {
			SYS3(SYS_fcntl, fd, F_SETFL, c->flags_of[fd]);
		}
		if ((SYS3(SYS_fcntl, fd, F_GETFD, 0) & FD_CLOEXEC) != c->cloexec[fd]) {
			SYS3(SYS_fcntl, fd, F_SETFD, c->cloexec[fd] ? FD_CLOEXEC : 0);
		}
	}
}

bool process_own_files(void)
{
	const struct control *c = rewind_control;
	for (size_t i = 0; i < c->offset_count; i++) {
		int fd = c->offsets[i].fd;
		if (is_own(fd) || c->copy_of[fd] == 0) {
			continue;
		}
		char path[64];
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		int flags = (c->flags_of[fd] & (O_ACCMODE | O_NONBLOCK | O_DIRECTORY)) | O_CLOEXEC;
		long again = SYS4(SYS_openat, AT_FDCWD, path, flags, 0);
		if (again < 0 || SYS3(SYS_lseek, again, c->offsets[i].at, SEEK_SET) < 0 ||
		    SYS3(SYS_dup3, again, fd, c->cloexec[fd] ? O_CLOEXEC : 0) < 0) {
			return false;
		}
		SYS1(SYS_close, again);
	}
	return true;
}

/* During the rollback. */
void process_restore(void)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->gap_count; i++) {
		SYS3(SYS_close_range, c->gaps[i].start, c->gaps[i].end - 1, 0);
	}
	if (c->any_lost) {
		for (int fd = 0; fd < MAX_FDS; fd++) {
			if (c->lost_fd[fd]) {
				c->lost_fd[fd] = false;
				if (c->copy_of[fd] == 0 || SYS3(SYS_dup3, c->copy_of[fd], fd, c->cloexec[fd] ? O_CLOEXEC : 0) < 0) {
					c->doubt_after = REWIND_DESCRIPTORS;
				}
			}
		}
		c->any_lost = false;
	}
	if (c->any_lock) {
		/* As the kernel does when a process ends. */
		for (int fd = 0; fd < MAX_FDS; fd++) {
			if (c->lock_fd[fd]) {
				c->lock_fd[fd] = false;
				struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
				SYS3(SYS_fcntl, fd, F_SETLK, &all);
				SYS3(SYS_fcntl, fd, F_OFD_SETLK, &all);
				SYS2(SYS_flock, fd, LOCK_UN);
			}
		}
		c->any_lock = false;
	}
	if (c->any_flags) {
		c->any_flags = false;
		process_restore_flags();
	}
	for (size_t i = 0; i < c->offset_count; i++) {
		SYS3(SYS_lseek, c->offsets[i].fd, c->offsets[i].at, SEEK_SET);
	}
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
	if (c->directory_changed) {
		c->directory_changed = false;
		if (c->cwd < 0 || SYS1(SYS_fchdir, c->cwd) != 0) {
			c->doubt_after = REWIND_DESCRIPTORS;
		}
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
	while (c->timers_set != 0) {
		int timer = __builtin_ctz(c->timers_set);
		c->timers_set &= (uint8_t)(c->timers_set - 1);
		struct itimerval none = {0};
		SYS3(SYS_setitimer, timer, &none, NULL);
	}
}
