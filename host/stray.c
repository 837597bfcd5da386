/*
 * See stray.h. Two pipes that nobody writes to, each for what the kernel says of its ends:
 *
 * The zygote alone keeps the writing end of `server`. A stray has its reading end send SIGKILL to it when there is no
 * writer left (O_ASYNC, F_SETSIG), so it ends with the server, however often it has forked. PR_SET_PDEATHSIG would not
 * do: it speaks of the parent, and what becomes a daemon outlives that.
 *
 * Each worker keeps the writing end of `family`. Before a fork it opens a reading end, which the child inherits and a
 * program that the child executes does not: while it has a reader, a stray is alive.
 */
#include "stray.h"
#include "rewind/rewind.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const volatile uint32_t *stray_mark;
void (*stray_forked)(bool child);

static int server_reader = -1, server_writer = -1, family_writer = -1;
/* Between the handlers of one fork. */
static int family_reader = -1;
/* A stray's own. */
static int server_end = -1;
static bool meant;
/* PHP code has forked since the last rewind; once without a descriptor that would tell whether the child lives. */
static bool has_forked, blindly;

static int move_up(int fd)
{
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, REWIND_OWN_FROM);
	if (high < 0) {
		return fd;
	}
	close(fd);
	return high;
}

/* The other end of a pipe, or the same one with settings of its own. */
static int open_end(int fd, int flags)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return move_up(open(path, flags | O_CLOEXEC | O_NONBLOCK));
}

static void before_fork(void)
{
	if (!meant && !is_stray() && family_writer >= 0) {
		int error = errno;
		family_reader = open_end(family_writer, O_RDONLY);
		errno = error;
	}
}

static void after_fork(void)
{
	if (!meant && !is_stray() && family_writer >= 0) {
		blindly |= family_reader < 0;
		if (family_reader >= 0) {
			close(family_reader);
		}
		family_reader = -1;
		has_forked = true;
		if (stray_forked != NULL) {
			stray_forked(false);
		}
	}
}

static void in_child(void)
{
	if (meant) {
		return;
	}
	int error = errno;
	if (stray_forked != NULL) {
		stray_forked(true);
	}
	if (server_writer >= 0) {
		close(server_writer);
		server_writer = -1;
	}
	if (family_writer >= 0) {
		close(family_writer);
		family_writer = -1;
	}
	/* The owner belongs to what was opened, so each stray opens it for itself. It closes first what it has of the one
	 * that forked it: there may be no other descriptor left. */
	if (server_end >= 0) {
		close(server_end);
	}
	server_end = server_reader < 0 ? -1 : open_end(server_reader, O_RDONLY);
	if (server_end >= 0) {
		fcntl(server_end, F_SETOWN, getpid());
		fcntl(server_end, F_SETSIG, SIGKILL);
		fcntl(server_end, F_SETFL, O_ASYNC | O_NONBLOCK);
	}
	errno = error;
}

const char *stray_start(void)
{
	uint32_t *page =
	    mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int server[2];
	if (page == MAP_FAILED || madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK) != 0) {
		return "the kernel does not empty a page in forked children (MADV_WIPEONFORK, Linux 4.14)";
	}
	*page = 1;
	stray_mark = page;
	if (pipe2(server, O_CLOEXEC) != 0 || pthread_atfork(before_fork, after_fork, in_child) != 0) {
		return "no descriptor or no memory to watch over forked processes";
	}
	server_reader = move_up(server[0]);
	server_writer = move_up(server[1]);
	return NULL;
}

pid_t host_fork(void)
{
	meant = true;
	pid_t pid = fork();
	meant = false;
	if (pid == 0) {
		*(volatile uint32_t *)stray_mark = 1;
	}
	return pid;
}

const char *stray_watch(void)
{
	int family[2];
	close(server_writer);
	server_writer = -1;
	if (pipe2(family, O_CLOEXEC) != 0) {
		return "no descriptor left to watch over forked processes; raise the limit of open files";
	}
	close(family[0]);
	family_writer = move_up(family[1]);
	return NULL;
}

bool stray_left(void)
{
	if (!has_forked || blindly) {
		return blindly;
	}
	/* A pipe that nobody can read from is in error. */
	struct pollfd end = {.fd = family_writer};
	return poll(&end, 1, 0) == 0;
}

void stray_end(void)
{
	/* Neither destructors nor goodbyes: connections and files are the worker's. */
	_exit(0);
}
