/*
 * Warm-up requests: what a first visitor would pay for is paid for before the snapshot. They run in the booting process
 * without a front, one after the other, with state kept; the application can tell them by $_SERVER['HAYATE_WARMUP'].
 * They are a help, never a condition: when one fails, hangs, or leaves open what workers must not share, the pool has
 * the application booted again without them, with what they had loaded by name (by_name.c); where visitors would get
 * other pages by them, without that as well.
 */
#include "host.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* What takes longer than this waits for something that will not come before there are visitors. */
#define SECONDS 30

/* So often a target is asked for, at most, to see whether what its requests leave grows, or was there to stay. */
#define MOST_TIMES 4

static size_t next;
/* The present request; NULL before the first. */
static const struct visit *visiting;

bool warmup_has_begun(void)
{
	return visiting != NULL;
}
/* What is asked for once more: by shutdown.c, or to look at what it leaves. */
static bool asking_again;
/* Without a comparison that went well nothing tells that a front controller does not depend on a request. */
static enum hy_again instead(enum hy_again of_warmup)
{
	return front_controller_boots() ? HY_AGAIN_CLASSIC : of_warmup;
}

void warmup_failed(const char *why, bool fatal)
{
	by_name_remember();
	boot_again(instead(HY_AGAIN_COLD), why, fatal);
}

void warmup_differs(const char *why)
{
	/* A class that was loaded ahead may be what made the difference. */
	by_name_forget();
	boot_again(instead(HY_AGAIN_DIFFERS), why, false);
}

static void too_long(int signal)
{
	zygote_boot_again(instead(HY_AGAIN_COLD),
	                  "the warm-up requests, and those that show what they left behind, took more than 30 seconds");
}

void warmup_limit(void)
{
	signal(SIGALRM, too_long);
	alarm(SECONDS);
}

void warmup_over(void)
{
	alarm(0);
	signal(SIGALRM, SIG_DFL);
	/* Another one that the boot has set would strike whatever request runs then. A fork does not take it along. */
	setitimer(ITIMER_VIRTUAL, &(struct itimerval){0}, NULL);
}

const char *warmup_target(bool *last)
{
	*last = asking_again;
	return visiting->target;
}

/* One target: how often it has been asked for, and whether one more request would tell more (residue.c, locks.c). */
static struct asked {
	const struct visit *visit;
	unsigned times;
	bool unsure;
} * asked;
static size_t asked_count;

static struct asked *asked_for(const struct visit *visit)
{
	for (size_t i = 0; i < asked_count; i++) {
		if (strcmp(asked[i].visit->target, visit->target) == 0) {
			return &asked[i];
		}
	}
	asked = safe_erealloc(asked, asked_count + 1, sizeof *asked, 0);
	asked[asked_count] = (struct asked){.visit = visit};
	return &asked[asked_count++];
}

static const struct visit *unsure_visit(void)
{
	for (size_t i = 0; i < asked_count; i++) {
		if (asked[i].unsure) {
			return asked[i].visit;
		}
	}
	return NULL;
}

/* What the request that is over, and the loop after it, have left to be handed in. */
static void look_at_residue(void)
{
	if (visiting == NULL) {
		residue_of_boot();
		return; /* there was none yet */
	}
	struct asked *one = asked_for(visiting);
	one->times++;
	locks_give_back();
	boot_restore_process();
	const char *left = residue_after(one->times > 1);
	one->unsure = left != NULL || residue_is_new() || (one->times == 1 && locks_taken_once() != NULL);
	if (left != NULL && one->times >= MOST_TIMES) {
		char why[512];
		snprintf(
		    why, sizeof why,
		    "each warm-up request of %s leaves something with an object of class %s, whose destructor would hand it "
		    "in at the end of every request. To avoid it: reset such services after a warm-up request",
		    visiting->target, left);
		warmup_failed(why, false);
	}
	one->unsure &= one->times < MOST_TIMES;
}

static const struct visit *find_visit(const char *target)
{
	for (size_t i = 0; target != NULL && i < options.warmup_count; i++) {
		if (strcmp(options.warmup[i].target, target) == 0) {
			return &options.warmup[i];
		}
	}
	return NULL;
}

bool warmup_next(struct hy_exchange *exchange)
{
	if (learn_elsewhere()) {
		return false; /* what they leave would stay */
	}
	bool rewinds = options.rewind != REWIND_OFF && options.warmup_count > 0;
	if (rewinds) {
		look_at_residue();
	}
	const struct visit *visit = NULL;
	if (next < options.warmup_count) {
		visit = &options.warmup[next++];
	} else if (rewinds) {
		asking_again = true;
		visit = find_visit(shutdown_ask_again());
		visit = visit != NULL ? visit : unsure_visit();
	}
	if (visit == NULL) {
		return false;
	}
	if (visiting == NULL) {
		warmup_limit();
	}
	visiting = visit;
	if (!visit_begin(visit, "warm-up", exchange)) {
		warmup_failed("a warm-up request does not fit the shared memory", false);
	}
	return true;
}
