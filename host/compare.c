/*
 * Whether warm-up requests left something behind that answers show: an application that keeps the first request (its
 * URL, its host, a page made for it) would answer every visitor with it. Then the pool boots it without warm-up.
 *
 * The same requests are made twice, of the application as it was before the warm-up and as it is after: by two
 * processes, forked at these two moments, that fork once more for each request and run it as a visitor's. So nothing
 * that such a request does stays in the process that becomes the zygote, and both sides meet the same outside world.
 *
 * Answers are compared word by word, without regard to order; words with digits do not count, since counters, times and
 * tokens have them. When the first pair differs, more of each are made, in turn: a word tells if it stands equally
 * often in all answers from before the warm-up, equally often in all from after it, and not the same number of times in
 * both. What differs by itself (a quotation, a token) does so by chance only, and for that it has to happen again and
 * again.
 *
 * An application may have kept a request before that, in its boot: then all URLs are answered alike, on both sides.
 * Where they are, the front controller, if that is not the worker script, says in classic mode whether they should be.
 *
 * Requests that are compared carry addresses, paths, a language and a cookie that warm-up requests did not
 * (crates/hayate/src/plan/visits.rs).
 */
#include "host.h"
#include "stray.h"
#include "explain.h"

#include <ctype.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Answers of each side to one request: so many are enough where each side's are all alike, and so many where not. Of
 * two pages chosen at random one request in 500 would be suspected, of 5 in 26 words one in 50,000. */
#define TRIES_ALIKE 5
#define TRIES 8
/* What of an answer is looked at. */
#define LONGEST ((size_t)384 << 10)
/* Words of an answer: one in two bytes at most. */
#define MOST_WORDS (LONGEST / 2)

struct answer {
	uint32_t status; /* 0: the process died without one */
	uint32_t failed; /* a fatal error ended it, whatever its status: where errors are displayed, that is 200 */
	uint32_t len;    /* of text: the head's fields, then the body */
	char text[LONGEST];
};

enum side { COLD, WARM, CLASSIC, SIDES };

/* Shared by the three processes. Words that somebody waits for are futexes. */
struct shared {
	struct keeper {
		uint32_t asked, done; /* how often; asked is the main process', done the keeper's */
		uint32_t visit, try;  /* what is asked for */
		uint32_t learns;      /* of the warm-up requests, to learn from it */
		int32_t end;          /* wait status of the process that answered */
		uint32_t failed;      /* it cannot go on */
	} keepers[SIDES];
	struct answer answers[SIDES][TRIES];
	uint64_t words[SIDES][TRIES][MOST_WORDS];
	size_t word_count[SIDES][TRIES];
};
static struct shared *shared;
static pid_t keepers[SIDES];
/* In a process that answers: where to, and whether something is to be learned from it (learn.c). */
static struct answer *own_answer;
static bool learns;
/* Of all workers that boot by themselves one compares. */
static uint32_t *compared;

static void futex(uint32_t *word, int operation, uint32_t value, const struct timespec *limit)
{
	syscall(SYS_futex, word, operation, value, limit, NULL, 0);
}

void compare_once_for_all(void)
{
	void *at = mmap(NULL, sizeof *compared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	compared = at == MAP_FAILED ? NULL : at;
}

void compare_failed(void)
{
	if (own_answer != NULL) {
		own_answer->failed = 1;
	}
}

bool compare_answers(void)
{
	return own_answer != NULL;
}

bool compare_learns(void)
{
	return learns;
}

void compare_request_over(void)
{
	if (learns) {
		learn_request_over();
	}
}

/* What is compared. Where the project's own front controller has booted, what tells is classic mode, against the
 * process from which visitors will be served. */
struct comparison {
	enum side sides[2]; /* of the second it is asked how it differs from the first */
	bool without_warmup;
};

static const struct comparison *comparison(void)
{
	static const struct comparison of_warmup = {.sides = {COLD, WARM}},
	                               of_front_controller = {.sides = {WARM, CLASSIC}, .without_warmup = true};
	return front_controller_boots() ? &of_front_controller : &of_warmup;
}

/* Whether there are requests to make. */
static bool has_visits(void)
{
	bool leaves = options.warmup_count > 0 || comparison()->without_warmup;
	return options.rewind != REWIND_OFF && leaves && options.compared_count > 0;
}

static bool is_wanted(void)
{
	return has_visits() && (compared == NULL || __atomic_load_n(compared, __ATOMIC_RELAXED) == 0);
}

/* The process that answers. */

static void take(const void *bytes, size_t len)
{
	size_t n = MIN(len, LONGEST - own_answer->len);
	memcpy(own_answer->text + own_answer->len, bytes, n);
	own_answer->len += (uint32_t)n;
}

static void take_body(const char *from, size_t len)
{
	if (!request.answered) {
		take(from, len);
	}
}

/* Fields of which the name alone says something. */
static bool is_noise(const char *name, size_t len)
{
	static const char *const names[] = {"Date", "Expires", "Last-Modified", "Server-Timing"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (strlen(names[i]) == len && strncasecmp(names[i], name, len) == 0) {
			return true;
		}
	}
	return false;
}

void compare_head(uint16_t status, sapi_headers_struct *headers)
{
	if (own_answer == NULL) {
		return;
	}
	zend_llist_position at;
	sapi_header_struct *h = headers == NULL ? NULL : zend_llist_get_first_ex(&headers->headers, &at);
	for (; h != NULL; h = zend_llist_get_next_ex(&headers->headers, &at)) {
		const char *colon = memchr(h->header, ':', h->header_len);
		size_t name = colon == NULL ? h->header_len : (size_t)(colon - h->header);
		const char *equals = colon == NULL ? NULL : memchr(colon, '=', h->header_len - name);
		bool cookie = name == 10 && strncasecmp(h->header, "Set-Cookie", 10) == 0;
		take(h->header, cookie && equals != NULL    ? (size_t)(equals - h->header)
		                : is_noise(h->header, name) ? name
		                                            : h->header_len);
		take("\n", 1);
	}
	own_answer->status = status;
}

/* From what there is to be learned; a front controller shows it without warm-up requests as well. */
static const struct visit *learned_from(size_t *count)
{
	*count = options.warmup_count > 0 ? options.warmup_count : options.compared_count;
	return options.warmup_count > 0 ? options.warmup : options.compared;
}

static void answer_to(enum side side, const struct keeper *self, struct hy_exchange *exchange)
{
	own_answer = &shared->answers[side][self->try];
	own_answer->status = own_answer->failed = own_answer->len = 0;
	learns = self->learns != 0;
	hy_local_sink = take_body;
	size_t count;
	const struct visit *visits = learns ? learned_from(&count) : options.compared;
	if (!visit_begin(&visits[self->visit], learns ? "warm-up" : "comparison", exchange)) {
		_exit(70);
	}
}

/* The keeper: holds the application as it was when it was forked. */

static void give_up(struct keeper *self)
{
	__atomic_store_n(&self->failed, 1u, __ATOMIC_RELEASE);
	futex(&self->done, FUTEX_WAKE, 1, NULL);
	_exit(70);
}

/* Returns in each process that is to answer. */
static void keep(enum side side, pid_t parent, const char *(*prepare)(void), struct hy_exchange *exchange)
{
	struct keeper *self = &shared->keepers[side];
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent) {
		_exit(0);
	}
	signal(SIGALRM, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	fork_be_silent(side == COLD && learn_elsewhere());
	if (side == COLD && learn_elsewhere()) {
		declares_note();
		in_the_way_note();
	}
	hy_ring_pretend();
	if (prepare() != NULL) {
		give_up(self);
	}
	pid_t keeper = getpid();
	for (uint32_t n = 0;; n++) {
		while (__atomic_load_n(&self->asked, __ATOMIC_ACQUIRE) == n) {
			futex(&self->asked, FUTEX_WAIT, n, NULL);
		}
		pid_t pid = host_fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
			if (getppid() != keeper) {
				_exit(0);
			}
			answer_to(side, self, exchange);
			return;
		}
		int status = 0;
		if (pid < 0 || waitpid(pid, &status, 0) != pid) {
			give_up(self);
		}
		rewind_child_over();
		self->end = status;
		__atomic_store_n(&self->done, n + 1, __ATOMIC_RELEASE);
		futex(&self->done, FUTEX_WAKE, 1, NULL);
	}
}

static bool fork_keeper(enum side side, const char *(*prepare)(void), struct hy_exchange *exchange)
{
	pid_t parent = getpid();
	keepers[side] = host_fork();
	if (keepers[side] == 0) {
		keep(side, parent, prepare, exchange);
		return true;
	}
	if (keepers[side] < 0) {
		warmup_failed("what warm-up requests leave behind cannot be looked at, since no process can be forked; raise "
		              "the limit of processes",
		              false);
	}
	return false;
}

static void share(void)
{
	if (shared != NULL) {
		return;
	}
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED) {
		shared = NULL;
		warmup_failed("what warm-up requests leave behind cannot be looked at, since there is no memory for it", false);
	}
}

static const char *begin_classic(void)
{
	options.worker_mode = false;
	options.rewind = REWIND_OFF;
	return NULL;
}

bool compare_keep_classic(struct hy_exchange *exchange)
{
	/* The last one is a made-up path: the front controller answers it. */
	const char *script = options.compared_count == 0 ? NULL : options.compared[options.compared_count - 1].script;
	if (!is_wanted() || script == NULL || strcmp(script, options.worker_script) == 0) {
		return false;
	}
	share();
	if (fork_keeper(CLASSIC, begin_classic, exchange)) {
		opcache_after_fork();
		return true;
	}
	return false;
}

bool compare_keep_cold(const char *(*prepare)(void), struct hy_exchange *exchange)
{
	bool is_to_learn = has_visits() && learn_elsewhere();
	if (!is_to_learn && !is_wanted()) {
		return false;
	}
	share();
	if (is_to_learn) {
		learn_begin();
	}
	return fork_keeper(COLD, prepare, exchange);
}

/* The process that has booted. */

static void end_keepers(void)
{
	for (int side = COLD; side < SIDES; side++) {
		if (keepers[side] > 0) {
			kill(keepers[side], SIGKILL);
			waitpid(keepers[side], NULL, 0);
			keepers[side] = 0;
		}
	}
	munmap(shared, sizeof *shared);
	shared = NULL;
}

static void differs(const char *why)
{
	end_keepers();
	warmup_differs(why);
}

static void cannot_tell(const char *why)
{
	end_keepers();
	warmup_failed(why, false);
}

/* False: that keeper has ended. */
static bool ask(enum side side, uint32_t visit, uint32_t try)
{
	struct keeper *keeper = &shared->keepers[side];
	uint32_t n = keeper->asked + 1;
	keeper->visit = visit;
	keeper->try = try;
	__atomic_store_n(&keeper->asked, n, __ATOMIC_RELEASE);
	futex(&keeper->asked, FUTEX_WAKE, 1, NULL);
	while (__atomic_load_n(&keeper->done, __ATOMIC_ACQUIRE) != n) {
		/* A moment at a time: one that was killed says nothing. Warm-up's own limit in time holds. */
		if (__atomic_load_n(&keeper->failed, __ATOMIC_ACQUIRE) != 0 || waitpid(keepers[side], NULL, WNOHANG) != 0) {
			keepers[side] = 0;
			return false;
		}
		futex(&keeper->done, FUTEX_WAIT, n - 1, &(struct timespec){.tv_nsec = 100000000});
	}
	switch (fork_cost(keeper->end)) {
	case HY_RETIRED_REWIND_CONNECTION:
		cannot_tell(
		    "a request uses a connection of the boot, so that what warm-up left behind cannot be looked at. Open "
		    "connections in the request that needs them");
		break;
	case HY_RETIRED_REWIND_DESCRIPTORS:
		cannot_tell(
		    "a request writes to a large file of the boot, or a file of the boot cannot be put back (the log says "
		    "so), so that what warm-up left behind cannot be looked at. Open such files in the request that needs "
		    "them");
		break;
	default:
		break;
	}
	return true;
}

bool compare_classic_answers(void)
{
	if (shared == NULL || keepers[CLASSIC] <= 0) {
		return false;
	}
	bool answers = false;
	for (uint32_t visit = 0; visit < options.compared_count && !answers; visit++) {
		if (!ask(CLASSIC, visit, 0)) {
			break;
		}
		const struct answer *answer = &shared->answers[CLASSIC][0];
		answers = answer->status >= 200 && answer->status < 500 && answer->failed == 0;
	}
	end_keepers();
	return answers;
}

void compare_learn(void)
{
	if (!learn_elsewhere()) {
		return;
	}
	bool warm = shared != NULL && keepers[COLD] > 0;
	if (warm) {
		warmup_limit();
		struct keeper *cold = &shared->keepers[COLD];
		cold->learns = 1;
		size_t count;
		learned_from(&count);
		for (uint32_t i = 0; i < count && ask(COLD, i, 0); i++) {
		}
		cold->learns = 0;
	}
	learn_over(warm);
}

static int ascending(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

static bool in_word(unsigned char c)
{
	return isalnum(c) || c == '_' || c == '-' || c >= 0x80;
}

/* FNV-1a of the word at `*at`, which moves behind it; 0: one with a digit, or none. */
static uint64_t next_word(const struct answer *answer, size_t *at, size_t *start)
{
	uint64_t hash = 0xcbf29ce484222325u;
	bool counts = true;
	while (*at < answer->len && !in_word((unsigned char)answer->text[*at])) {
		++*at;
	}
	for (*start = *at; *at < answer->len && in_word((unsigned char)answer->text[*at]); ++*at) {
		counts &= !isdigit((unsigned char)answer->text[*at]);
		hash = (hash ^ (unsigned char)answer->text[*at]) * 0x100000001b3u;
	}
	return counts && *at > *start ? hash | 1 : 0;
}

/* How often the request's own host stands there, its port included: a port alone is no word. */
static size_t count_host(const struct answer *answer, const char *host)
{
	size_t n = 0, len = strlen(host);
	const char *at = answer->text, *end = answer->text + answer->len;
	while (len > 0 && (at = memmem(at, (size_t)(end - at), host, len)) != NULL) {
		at += len;
		n += at == end || !(in_word((unsigned char)*at) || *at == ':' || *at == '.');
	}
	return n;
}

#define STATUS_WORDS 0x10000u /* a word for each status; hashes are odd and larger */
#define HOST_WORD 2u

static void find_words(enum side side, uint32_t try, const char *host)
{
	const struct answer *answer = &shared->answers[side][try];
	uint64_t *words = shared->words[side][try];
	size_t count = 0, at = 0, start;
	words[count++] = STATUS_WORDS + answer->status * 2;
	for (size_t n = count_host(answer, host); n > 0 && count < MOST_WORDS; n--) {
		words[count++] = HOST_WORD;
	}
	while (at < answer->len && count < MOST_WORDS) {
		uint64_t word = next_word(answer, &at, &start);
		if (word != 0) {
			words[count++] = word;
		}
	}
	qsort(words, count, sizeof *words, ascending);
	shared->word_count[side][try] = count;
}

/* A word that tells the sides apart, in their first `tries` answers; 0: none does. How often it stands in each, and
 * whether each side's answers are all alike. */
static uint64_t telling_word(const enum side sides[2], uint32_t tries, size_t often[2], bool *alike)
{
	size_t at[2][TRIES] = {{0}};
	uint64_t telling = 0;
	*alike = true;
	for (;;) {
		uint64_t least = UINT64_MAX;
		for (int side = 0; side < 2; side++) {
			const size_t *count = shared->word_count[sides[side]];
			for (uint32_t i = 0; i < tries; i++) {
				if (at[side][i] < count[i]) {
					least = MIN(least, shared->words[sides[side]][i][at[side][i]]);
				}
			}
		}
		if (least == UINT64_MAX) {
			return telling;
		}
		bool steady = true;
		size_t times[2] = {0};
		for (int side = 0; side < 2; side++) {
			const size_t *count = shared->word_count[sides[side]];
			for (uint32_t i = 0; i < tries; i++) {
				size_t before = at[side][i];
				while (at[side][i] < count[i] && shared->words[sides[side]][i][at[side][i]] == least) {
					at[side][i]++;
				}
				size_t n = at[side][i] - before;
				steady &= i == 0 || n == times[side];
				times[side] = n;
			}
		}
		*alike &= steady;
		if (telling == 0 && steady && times[0] != times[1]) {
			telling = least;
			memcpy(often, times, sizeof times);
		}
	}
}

/* The word itself, in an answer that has it. */
static void spell(uint64_t word, enum side side, char *to, size_t size)
{
	const struct answer *answer = &shared->answers[side][0];
	size_t at = 0, start = 0;
	to[0] = '\0';
	while (at < answer->len) {
		if (next_word(answer, &at, &start) == word) {
			snprintf(to, size, "%.*s", (int)MIN(at - start, 60), answer->text + start);
			return;
		}
	}
}

/* What tells the answers of the second side from those of the first. */
static void explain_difference(const enum side sides[2], const struct visit *visit, uint64_t word,
                               const size_t often[2])
{
	char why[1024], text[64];
	const struct answer *cold = &shared->answers[sides[0]][0], *warm = &shared->answers[sides[1]][0];
	bool warmed = sides[1] == WARM;
	int len = snprintf(
	    why, sizeof why,
	    warmed ? "after the warm-up requests %s://%s%s%s is answered as it is not without them: "
	           : "the front controller depends on the request before it handles it; %s://%s%s%s is answered in "
	             "classic mode as it is not when all before that has run at the boot: ",
	    visit->scheme, visit->host, visit->target,
	    visit->another_visitor ? ", for a visitor with Accept-Language: fr-FR and a cookie," : "");
	char *to = why + MIN((size_t)len, sizeof why - 1);
	size_t size = sizeof why - (size_t)(to - why);
	if (warm->status == 0) {
		snprintf(to, size, "the process dies, instead of status %u", cold->status);
	} else if (cold->status == 0) {
		snprintf(to, size, "status %u, while otherwise the process dies", warm->status);
	} else if (cold->status != warm->status) {
		snprintf(to, size, "status %u, not %u", warm->status, cold->status);
	} else if (word == HOST_WORD) {
		snprintf(to, size, "it names that host %zu times, not %zu", often[1], often[0]);
	} else {
		spell(word, often[1] > 0 ? sides[1] : sides[0], text, sizeof text);
		snprintf(to, size, "the word '%s' stands there %zu times, not %zu", text, often[1], often[0]);
	}
	differs(why);
}

/* Of all that an answer says but for the request's own host. */
static uint64_t sum_up(enum side side, uint32_t try)
{
	uint64_t hash = 0xcbf29ce484222325u;
	for (size_t i = 0; i < shared->word_count[side][try]; i++) {
		uint64_t word = shared->words[side][try][i];
		hash = word == HOST_WORD ? hash : (hash ^ word) * 0x100000001b3u;
	}
	return hash;
}

/* All URLs were answered alike. Whether the front controller does that, too, in classic mode. */
static void ask_classic(uint32_t first, uint32_t made_up)
{
	const struct answer *answers = shared->answers[CLASSIC];
	if (keepers[CLASSIC] == 0 || !ask(CLASSIC, first, 0) || !ask(CLASSIC, made_up, 1) || answers[0].status == 0 ||
	    answers[0].status >= 500 || answers[1].status == 0 || answers[1].status >= 500) {
		return; /* it is not the same application */
	}
	find_words(CLASSIC, 0, options.compared[first].host);
	find_words(CLASSIC, 1, options.compared[made_up].host);
	if (sum_up(CLASSIC, 0) == sum_up(CLASSIC, 1)) {
		return;
	}
	char why[1024];
	snprintf(
	    why, sizeof why,
	    "the worker script answers %s and %s alike, and %s does not in classic mode: it seems that the boot keeps a "
	    "request, which every visitor gets the page of. Make the request anew in the handler, or use mode = "
	    "\"classic\"",
	    options.compared[first].target, options.compared[made_up].target, options.compared[made_up].script);
	zygote_remark(why);
}

/* Asks both sides for one visit, again and again while that tells more; 0, or a word that tells them apart. */
static uint64_t compare_visit(const enum side sides[2], uint32_t i, size_t often[2])
{
	uint64_t word = 1;
	for (uint32_t try = 0; try < TRIES; try++) {
		for (int side = 0; side < 2; side++) {
			if (!ask(sides[side], i, try)) {
				cannot_tell("the processes that show what is left behind could not go on");
			}
			find_words(sides[side], try, options.compared[i].host);
		}
		bool alike;
		word = telling_word(sides, try + 1, often, &alike);
		if (word == 0 || (alike && try + 1 >= TRIES_ALIKE)) {
			break;
		}
	}
	return word;
}

bool compare_warm(const char *(*prepare)(void), struct hy_exchange *exchange)
{
	if (shared == NULL) {
		return false;
	}
	if (!is_wanted()) {
		end_keepers();
		return false;
	}
	const enum side *sides = comparison()->sides;
	if (fork_keeper(WARM, prepare, exchange)) {
		return true;
	}
	uint64_t sum = 0;
	bool all_alike = true, tells = sides[1] == WARM;
	for (uint32_t i = 0; i < options.compared_count; i++) {
		size_t often[2] = {0};
		uint64_t word = compare_visit(sides, i, often);
		if (word != 0) {
			explain_difference(sides, &options.compared[i], word, often);
		}
		all_alike &= i == 0 || sum_up(sides[0], 0) == sum;
		sum = sum_up(sides[0], 0);
		/* A redirection, to a page for logging in perhaps, shows nothing of the page itself. */
		tells |= shared->answers[sides[1]][0].status >= 200 && shared->answers[sides[1]][0].status < 300;
	}
	if (!tells) {
		differs("no page was found by which to tell whether the front controller depends on the request before it "
		        "handles it: no sample request has a status from 200 to 299. Name a page of the application: "
		        "warmup = [\"/page\"]");
	}
	if (sides[1] == WARM && all_alike && shared->answers[COLD][0].status < 400) {
		ask_classic(0, options.compared_count - 1);
	}
	end_keepers();
	if (compared != NULL) {
		__atomic_store_n(compared, 1u, __ATOMIC_RELAXED);
	}
	return false;
}
