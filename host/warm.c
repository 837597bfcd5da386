/*
 * Warm connections (connections = "warm"), PHP's part: when rewind/connections.c is told what, and what people are
 * told.
 *
 * A connection that is open when a worker reaches its point is kept over rewinds if its server can be put back as well.
 * Of others that the boot has opened the old rule holds: a request that uses one costs its worker. One that a worker's
 * step has opened (worker_start.c) lies where requests take it instead of opening their own, so that each would cost
 * its worker: this worker ends before there is a request, and no other of its generation takes that step. But where the
 * server was silent or gone, another tries later. So with `connections = "request"`, without tracking, and where state
 * is kept nothing here does anything.
 */
#include "host.h"
#include "stray.h"
#include "explain.h"
#include "rewind/connections.h"

#include <sys/random.h>

/* Whether this process may keep connections: it rewinds its memory, and so knows what their clients' libraries know. */
static bool wanted(void)
{
	return options.warm_connections && (options.rewind == REWIND_UFFD || options.rewind == REWIND_SOFT_DIRTY);
}

static void forked(bool child)
{
	if (child) {
		connections_in_child();
	} else {
		connections_forked();
	}
}

void warm_watch(void)
{
	const char *wrong = wanted() ? connections_watch() : NULL;
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	stray_forked = wanted() ? forked : NULL;
}

/* What connections_settle() tells of the boot's, as one text; and the hash of a text (FNV-1a). */
static char refusals[16384];
static size_t refusals_len;

static uint64_t hash_of(const char *text, size_t len)
{
	uint64_t hash = 0xcbf29ce484222325u;
	for (size_t i = 0; i < len; i++) {
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
	}
	return hash;
}

static void tell_of_boot(const char *peer, const char *kind, const char *why)
{
	size_t room = sizeof refusals - refusals_len;
	int n = why == NULL
	            ? 0
	            : snprintf(refusals + refusals_len, room,
	                       "The connection to %s (%s) that the boot opened is not kept from request to request: %s. A "
	                       "request that uses it costs its worker.\n",
	                       peer, kind, why);
	refusals_len += n > 0 && (size_t)n < room ? (size_t)n : 0;
	refusals[refusals_len] = '\0'; /* what does not fit is not told of */
}

void warm_step(unsigned number)
{
	connections_opener(number);
}

uint32_t warm_left_out(void)
{
	return __atomic_load_n(hy_ring_left_out(), __ATOMIC_RELAXED);
}

/* Steps (bit 0 the first) that have opened what is open now, what cannot be kept, and what its server has left. */
static uint32_t opened, declined, abandoned;

/* Says which of them no worker had left out yet. */
static uint32_t leave_out(uint32_t steps)
{
	return steps & ~__atomic_fetch_or(hy_ring_left_out(), steps, __ATOMIC_RELAXED);
}

static void tell_of_step(const char *peer, const char *kind, const char *why, uint32_t step, bool gone)
{
	static uint32_t news;
	opened |= step;
	if (why == NULL) {
		return;
	}
	if (gone) {
		abandoned |= step;
		if (warm_start_failed(true)) {
			log_format(
			    "The connection to %s (%s) that a worker has opened as it started was left by its server at once: "
			    "%s. Workers serve without it for ten seconds or more; then one tries again. Each that fails as "
			    "well doubles that time, up to ten minutes, and says nothing.",
			    peer, kind, why);
		}
		return;
	}
	declined |= step;
	news |= leave_out(step);
	if (news & step) {
		log_format(
		    "The connection to %s (%s) that a worker has opened as it started is not kept from request to request: %s. "
		    "Until the next reload workers leave out what hayate_on_worker_start() was given there, and requests open "
		    "their own.",
		    peer, kind, why);
	}
}

static void tell(const char *peer, const char *kind, const char *why, unsigned step, bool gone)
{
	explain_connection(peer, kind, why);
	if (step > 0) {
		tell_of_step(peer, kind, why, 1u << (step - 1), gone);
	} else {
		tell_of_boot(peer, kind, why);
	}
}

/* Once for each generation, until it is something else: workers come and go, and would say the same. */
static void say_declined(void)
{
	uint64_t hash = hash_of(refusals, refusals_len);
	if (refusals_len == 0 ||
	    __atomic_exchange_n(&hy_ring_first_record()->told_declined, hash, __ATOMIC_RELAXED) == hash) {
		return;
	}
	for (char *line = refusals, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		log_format("%.*s", (int)(end - line), line);
	}
}

/* How long workers of a number go without a start that failed, perhaps for want of a server; then one tries again. Each
 * failure in a row doubles it, up to ten minutes: what never succeeds is not to cost a worker again and again. */
#define RETRY_NS 10000000000ull
#define RETRY_MAX_NS 600000000000ull
/* All may have failed at one time, and a try may wait for ten seconds: these do so one after the other, and the others
 * serve. */
#define APART_NS 10000000000ull
#define IN_TURN 60

/* 0: its start did not fail. */
static uint64_t retry_at;

bool warm_may_start(void)
{
	uint64_t at = hy_ring_record()->start_again_at;
	if (hy_now() >= at) {
		return true;
	}
	retry_at = at;
	return false;
}

static uint64_t in_turn(void)
{
	return hy_ring_worker() % IN_TURN * APART_NS;
}

bool warm_start_failed(bool skip)
{
	struct hy_worker *record = hy_ring_record();
	if (retry_at != 0) { /* it has failed before, in another step */
		record->start_again_at = skip ? retry_at : record->start_again_at;
		return false;
	}
	uint32_t before = record->failed_starts;
	before = before > 6 ? 6 : before;
	record->failed_starts = before + 1;
	uint64_t wait = RETRY_NS << before;
	wait = wait > RETRY_MAX_NS ? RETRY_MAX_NS : wait;
	retry_at = hy_now() + wait + in_turn();
	record->start_again_at = skip ? retry_at : 1;
	return before == 0;
}

static void started(void)
{
	hy_ring_record()->failed_starts = 0;
	hy_ring_record()->start_again_at = 1; /* long past; 0 is of a number that has never started */
}

bool warm_has_started(void)
{
	return hy_ring_record()->start_again_at != 0;
}

/* What a server looks at when a connection is opened, an account or a password, is looked at again at that time, by the
 * one that opens the next: as with the pools of other languages. 0: never. */
static uint64_t too_old_at;

/* Not all workers of one boot at one time: at four fifths of that age at the earliest. */
static void note_age(void)
{
	const uint64_t most = options.connection_lifetime_ms * 1000000u, least = most - most / 5;
	uint32_t chance;
	if (most == 0) {
		return;
	}
	bool random = getrandom(&chance, sizeof chance, 0) == sizeof chance;
	too_old_at = hy_now() + least + (random ? (most - least) / 1000 * (chance % 1000) : 0);
}

static bool may_take(void)
{
	uint64_t now = hy_now();
	return connections_alive() && (retry_at == 0 || now < retry_at) && (too_old_at == 0 || now < too_old_at);
}

void warm_settle(void)
{
	size_t kept = wanted() ? connections_settle(tell) : 0;
	say_declined();
	if (kept > 0) {
		note_age();
	}
	if (worker_start_took_place() && retry_at == 0) {
		started();
	}
	if ((declined | abandoned) != 0) {
		worker_start_give_up();
	}
	if (kept > 0 || retry_at != 0) {
		hy_before_take = may_take;
	}
	hy_ring_record()->warm = (uint32_t)connections_kept();
}

bool warm_request_over(void)
{
	const char *kind, *wrong = connections_reset(&kind);
	if (wrong == NULL) {
		return true;
	}
	/* Once for each generation and each of 32 kinds of reasons: a page that does so may be asked for all day. */
	uint32_t bit = 1u << (hash_of(wrong, strlen(wrong)) & 31);
	if (!(__atomic_fetch_or(&hy_ring_first_record()->told_left, bit, __ATOMIC_RELAXED) & bit)) {
		log_format(
		    "A request left its connection to %s so that it cannot be put back: %s. This worker is replaced, as it "
		    "is each time.",
		    kind, wrong);
	}
	return false;
}

void warm_after_rewind(void)
{
	bool silent;
	const char *kind, *wrong = connections_answered(&kind, &silent);
	uint64_t resets, ns;
	connections_cost(&resets, &ns);
	hy_ring_record()->resets = resets;
	hy_ring_record()->reset_ns = ns;
	if (wrong != NULL) {
		log_format("A connection to %s is not kept any longer: %s. This worker is replaced.", kind, wrong);
		if (silent) {
			/* All workers may have waited, and those in their places would wait for it again, and all at one time. */
			hy_ring_record()->start_again_at = hy_now() + RETRY_NS + in_turn();
		}
		worker_exit(HY_RETIRED_CONNECTION_LOST);
	}
}

bool warm_lost(void)
{
	if (hy_before_take == NULL || hy_before_take()) {
		return false;
	}
	if (too_old_at != 0 && hy_now() >= too_old_at && connections_alive()) {
		worker_exit(HY_RETIRED_CONNECTION_LIFETIME);
	}
	return true;
}

void warm_give_up(void)
{
	if (opened != 0) { /* each of its requests, in a process of its own, would cost a worker as well */
		(void)leave_out(opened);
		worker_start_give_up();
	}
	connections_forget();
	hy_before_take = NULL;
	hy_ring_record()->warm = 0;
}

void warm_leave(void)
{
	connections_close();
}
