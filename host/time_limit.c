/*
 * max_execution_time in worker mode, without the four system calls by which PHP sets its timer and its handler when a
 * request begins and takes them away when it ends: a twentieth of what a small request costs.
 *
 * The timer (ITIMER_PROF: processor time) runs on from request to request and ticks TICKS times in a limit. Few
 * requests ever see a tick. One that does gets the whole limit from there, by a timer of its own. So a request is ended
 * after its limit and never before, at the latest a TICKS-th of the limit later.
 *
 * Whoever sets the timer or the signal's handler (set_time_limit(), PHP's hard_timeout, an extension) has it for the
 * request: then the end of the request takes it back, as PHP does. Once FFI has been given a function of libc's, timer,
 * handler and mask are set for each request: by a number, or by the mask, all of it can be changed unseen.
 *
 * A request that has run for longer than request_timeout is ended in the same way, in every mode, by a signal of its
 * own that says which request is meant: the zygote sends it, and a moment later the pool kills the worker, whatever it
 * does.
 *
 * Never: a tick that reaches PHP's handler, or code of the application's.
 */
#include "engine.h"
#include "host.h"
#include "rewind/rewind.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define TICKS 8
/* Which nobody else uses: libc keeps the first two real-time signals, and PHP none. */
#define ENDS_REQUEST (SIGRTMIN + 2)

enum owner {
	NOBODY,  /* the timer is not set */
	TICKING, /* for whatever request runs */
	REQUEST  /* set for this request: by its first tick, or by somebody else */
};

/* The state of a timer, which a rewind does not change: so neither may it change this. */
static struct timer {
	volatile sig_atomic_t owner;
	zend_long limit; /* seconds, with TICKING */
	bool asked;      /* somebody has a function of libc's */
} timer_without_rewind, *timer = &timer_without_rewind;

static void (*php_handler)(int, siginfo_t *, void *);
static struct sigaction action;

static void set_timer(int64_t every_us, int64_t first_us)
{
	struct itimerval value = {
	    .it_interval = {.tv_sec = every_us / 1000000, .tv_usec = every_us % 1000000},
	    .it_value = {.tv_sec = first_us / 1000000, .tv_usec = first_us % 1000000},
	};
	rewind_set_timer(ITIMER_PROF, &value);
}

/* The server has ended the request by this signal. */
static volatile sig_atomic_t ended_by_server;

/* Its parent has sent it (time_limit_end_request()). Another request may have begun since. What PHP's handler of its
 * own signal does; a call that waits returns. */
static void end_request(int signal, siginfo_t *info, void *context)
{
	uint32_t ticket = (uint32_t)info->si_value.sival_int;
	if (info->si_code == SI_QUEUE && info->si_pid == getppid() && !fork_end_request(ticket) &&
	    (lifecycle_in_request() || !options.worker_mode) &&
	    (uint32_t)(request.exchange.claim >> HY_CLAIM_TICKET_SHIFT) == ticket) {
		ended_by_server = 1;
		engine_end_by_timeout();
	}
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
	if (timer->owner == REQUEST) {
		php_handler(signal, info, context);
	} else if (timer->owner == TICKING && lifecycle_in_request()) {
		int error = errno;
		timer->owner = REQUEST;
		set_timer(0, timer->limit * 1000000);
		errno = error;
	}
}

/* A child has no timer. */
static void in_child(void)
{
	timer->owner = NOBODY;
}

static void taken(bool by_handler)
{
	if (by_handler && timer->owner == TICKING) {
		/* Who waits for this signal is to get it when PHP would. */
		set_timer(0, timer->limit * 1000000);
	}
	timer->owner = REQUEST;
}

/* PHP's own handler is the one that decides what a limit that is over means; ours stands before it. */
static void stand_before(void)
{
	struct sigaction now;
	if (sigaction(SIGPROF, NULL, &now) != 0 || now.sa_sigaction == on_signal) {
		return;
	}
	php_handler = now.sa_sigaction;
	action = now;
	action.sa_sigaction = on_signal;
	action.sa_flags |= SA_RESTART; /* a tick is nothing that a call should return for */
	rewind_timer_taken = NULL;
	sigaction(SIGPROF, &action, NULL);
	rewind_timer_taken = taken;
}

/* In its parent: has PHP end the request of that ticket (of which these bits will do) in a worker that was asked to
 * leave, so that what it holds for others (a lock in APCu's memory) is given back. */
void time_limit_end_request(pid_t worker, uint32_t ticket)
{
	sigqueue(worker, ENDS_REQUEST, (union sigval){.sival_int = (int)ticket});
}

/* PHP's message names the limit: of one that is the server's, how long the request has run. */
static void (*on_timeout_before)(int seconds);

static void on_timeout(int seconds)
{
	if (ended_by_server) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		double ran = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - sapi_get_request_time();
		EG(timeout_seconds) = ran > 1.5 && ran < 1e9 ? (zend_long)(ran + 0.5) : 1;
	}
	if (on_timeout_before != NULL) {
		on_timeout_before(seconds);
	}
}

void time_limit_startup(void)
{
	on_timeout_before = zend_on_timeout;
	zend_on_timeout = on_timeout;
	struct sigaction ends = {.sa_sigaction = end_request, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaction(ENDS_REQUEST, &ends, NULL);
}

void time_limit_start(void)
{
	struct timer *kept = rewind_keep(sizeof *kept);
	if (kept != NULL) {
		timer = kept;
	}
	pthread_atfork(NULL, NULL, in_child);
	/* A limit of no seconds sets the handler, and no timer. */
	zend_set_timeout(0, 1);
	stand_before();
	timer->asked = false; /* that was PHP itself, and its extensions */
	rewind_libc_asked_for = &timer->asked;
}

void time_limit_begin(void)
{
	EG(timeout_seconds) = INI_INT("max_execution_time");
	if (EG(timeout_seconds) < 0 || EG(timeout_seconds) > 999999999) {
		EG(timeout_seconds) = 0; /* as zend_set_timeout() */
	}
	zend_long limit = EG(timeout_seconds);
	if (timer->owner == TICKING && timer->limit == limit && !timer->asked) {
		return;
	}
	if (timer->owner == REQUEST || timer->asked) {
		zend_set_timeout(0, 1);
		EG(timeout_seconds) = limit;
		stand_before();
	}
	if (limit == 0) {
		if (timer->owner != NOBODY) {
			set_timer(0, 0);
			timer->owner = NOBODY;
		}
		return;
	}
	timer->limit = limit;
	timer->owner = TICKING;
	set_timer(limit * 1000000 / TICKS, limit * 1000000 / TICKS);
}

void time_limit_end(void)
{
	if (timer->owner == REQUEST) {
		set_timer(0, 0);
		zend_unset_timeout();
	}
}
