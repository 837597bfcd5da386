/*
 * Handlers of signals must not run on memory that is half put back, and to block all signals meanwhile takes two system
 * calls for each request: a twentieth of what a small one costs. So the handlers that the boot has set stand behind one
 * of the host's, which during a rollback notes the signal and returns; it is sent again when the memory is whole.
 *
 * Signals are blocked all the same, and their mask is put back, where that does not do: a handler or the mask was
 * changed since the point, or may have been, unseen, by a function of libc's that somebody has asked for by its name;
 * or the boot has a handler for what an instruction of the rollback itself could cause, which cannot wait.
 *
 * Nobody sees the handler in front: who asks for the present one is told of the one behind it (interpose_process.c).
 */
#include "interpose.h"

/* Put back by each rewind like all memory, to what it was. */
static struct kernel_sigaction behind[MAX_SIGNALS + 1];

/* Of others than real-time signals the kernel keeps one of each as well. This may be interrupted for another signal. */
static void postpone(struct control *c, int signal, const siginfo_t *info)
{
	uint64_t bit = 1ull << (signal - 1);
	if (signal < SIGRTMIN && (__atomic_fetch_or(&c->postponed_once, bit, __ATOMIC_RELAXED) & bit) != 0) {
		return;
	}
	uint32_t at = __atomic_fetch_add(&c->postponed_count, 1, __ATOMIC_RELAXED);
	if (at < MOST_POSTPONED) {
		c->postponed[at] = *info;
	}
}

static void in_front(int signal, siginfo_t *info, void *context)
{
	struct control *c = rewind_control;
	if (c->rolling_back) {
		postpone(c, signal, info);
		return;
	}
	/* It may leave by longjmp(3), with the mask of a handler. */
	c->mask_changed = true;
	const struct kernel_sigaction *one = &behind[signal];
	if (one->flags & SA_SIGINFO) {
		((void (*)(int, siginfo_t *, void *))one->handler)(signal, info, context);
	} else {
		((void (*)(int))one->handler)(signal);
	}
}

static bool can_wait(int signal, const struct kernel_sigaction *action)
{
	return signal != SIGSEGV && signal != SIGBUS && signal != SIGILL && signal != SIGFPE && signal != SIGTRAP &&
	       signal != SIGSYS && !(action->flags & (unsigned)SA_RESETHAND);
}

/* When the actions were noted. */
void signals_stand_in_front(void)
{
	struct control *c = rewind_control;
	c->cannot_wait = c->mask_changed = false;
	for (int i = 1; i <= MAX_SIGNALS; i++) {
		struct kernel_sigaction *action = &c->actions[i];
		if (action->handler == (void *)SIG_DFL || action->handler == (void *)SIG_IGN ||
		    action->handler == (void *)in_front) {
			continue;
		}
		if (!can_wait(i, action)) {
			c->cannot_wait = true;
			continue;
		}
		behind[i] = *action;
		action->handler = (void *)in_front;
		action->flags |= SA_SIGINFO;
		if (SYS4(SYS_rt_sigaction, i, action, NULL, sizeof action->mask) != 0) {
			rewind_die("setting a signal's handler", 0);
		}
	}
}

const struct kernel_sigaction *signals_behind(int signal, const void *handler)
{
	return handler == (const void *)in_front && signal >= 1 && signal <= MAX_SIGNALS ? &behind[signal] : NULL;
}

bool signals_must_be_blocked(void)
{
	const struct control *c = rewind_control;
	/* A handler on a stack of the request's would write to memory that is being put back. */
	return c->cannot_wait || c->mask_changed || c->signal_stack_changed || c->actions_changed != 0 ||
	       *rewind_libc_asked_for;
}

void signals_send_again(void)
{
	struct control *c = rewind_control;
	/* Blocked until all are there: the handler of one may leave by longjmp(3). */
	uint64_t all = ~0ull;
	SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);
	uint32_t count = __atomic_exchange_n(&c->postponed_count, 0, __ATOMIC_RELAXED);
	c->postponed_once = 0;
	for (uint32_t i = 0; i < count && i < MOST_POSTPONED; i++) {
		siginfo_t *info = &c->postponed[i];
		SYS4(SYS_rt_tgsigqueueinfo, SYS1(SYS_getpid, 0), SYS1(SYS_gettid, 0), info->si_signo, info);
	}
	SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &c->signal_mask, NULL, sizeof c->signal_mask);
}

/* What the kernel did with SIGCHLD; and whether it is told otherwise now. */
static struct kernel_sigaction of_boot;
static bool hears;

void rewind_hear_children(void)
{
	struct kernel_sigaction by_itself = {.handler = (void *)SIG_DFL};
	if (hears || SYS4(SYS_rt_sigaction, SIGCHLD, NULL, &of_boot, sizeof of_boot.mask) != 0) {
		return;
	}
	bool untold = of_boot.handler == (void *)SIG_IGN || (of_boot.flags & SA_NOCLDWAIT) != 0;
	hears = untold && SYS4(SYS_rt_sigaction, SIGCHLD, &by_itself, NULL, sizeof by_itself.mask) == 0;
}

void rewind_leave_children(void)
{
	if (hears) {
		SYS4(SYS_rt_sigaction, SIGCHLD, &of_boot, NULL, sizeof of_boot.mask);
		hears = false;
	}
}
