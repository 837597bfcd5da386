/*
 * What the kernel keeps for a process besides its memory, its descriptors (descriptors.c) and its locks (held.c):
 * working directory, umask, signals, timers, threads, children, libraries. Noted at the point, put back by each rewind,
 * or found to be in doubt.
 */
#include "internal.h"

#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int libraries(struct dl_phdr_info *info, size_t size, void *to)
{
	unsigned long long *counts = to;
	counts[0] = info->dlpi_adds;
	counts[1] = info->dlpi_subs;
	return 1; /* the counts are the same in every entry */
}

const char *process_note(void)
{
	struct control *c = rewind_control;
	c->cwd = (int)SYS4(SYS_openat, AT_FDCWD, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	c->umask = (int)SYS1(SYS_umask, 0);
	SYS1(SYS_umask, c->umask);
	const char *wrong = descriptors_note();
	if (wrong != NULL) {
		return wrong;
	}
	SYS4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &c->signal_mask, sizeof c->signal_mask);
	uint64_t pending = 0;
	SYS2(SYS_rt_sigpending, &pending, sizeof pending);
	c->not_pending = c->signal_mask & ~pending;
	for (int i = 1; i <= MAX_SIGNALS; i++) {
		SYS4(SYS_rt_sigaction, i, NULL, &c->actions[i], sizeof c->signal_mask);
	}
	signals_stand_in_front();
	c->single_threaded = __libc_single_threaded;
	c->actions_changed = 0;
	c->undo_count = 0;
	held_note_children();
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

int rewind_threads(void)
{
	struct stat st;
	/* One link for each thread, two for the directory itself. */
	return stat("/proc/self/task", &st) == 0 ? (int)st.st_nlink - 2 : 0;
}

enum rewind_doubt process_doubt(void)
{
	struct control *c = rewind_control;
	if (c->any_sent && descriptors_was_any_answered()) {
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

/* Of each signal the kernel keeps one, and of real-time signals as many as it may (RLIMIT_SIGPENDING). */
#define MOST_PENDING 100000

/* During the rollback. */
void process_restore(void)
{
	struct control *c = rewind_control;
	descriptors_restore();
	rewind_unlock();
	held_restore();
	descriptors_restore_files();
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
	/* What the boot blocks would wait for the next one. A bound, since somebody may send more all the while. */
	for (int i = 0; c->not_pending != 0 && i < MOST_PENDING; i++) {
		const struct timespec now = {0};
		if (SYS4(SYS_rt_sigtimedwait, &c->not_pending, NULL, &now, sizeof c->not_pending) < 0) {
			break;
		}
	}
	while (c->timers_set != 0) {
		int timer = __builtin_ctz(c->timers_set);
		c->timers_set &= (uint8_t)(c->timers_set - 1);
		struct itimerval none = {0};
		SYS3(SYS_setitimer, timer, &none, NULL);
	}
}
