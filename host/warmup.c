/*
 * Warm-up requests: what a first visitor would pay for is paid for before the snapshot. They run in the booting process
 * without a front, one after the other, with state kept; the application can tell them by $_SERVER['HAYATE_WARMUP'].
 * They are a help, never a condition: when one fails, hangs, or leaves open what workers must not share, the pool has
 * the application booted again without them. The classes that they had loaded are then loaded by their names, and their
 * patterns compiled: that is most of what a first visitor would pay for, and does what autoloaders do and nothing else.
 */
#include "host.h"

#include "ext/pcre/php_pcre.h"
#include "ext/standard/basic_functions.h"
#include "zend_exceptions.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
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
/* How many classes there were at the end of the boot. */
static uint32_t booted_classes;

/* One record of what a boot to come prepares by name: its kind and the name, which ends with a zero. */
static bool note(size_t *at, char kind, const char *name, size_t len)
{
	struct iovec parts[] = {{&kind, 1}, {(char *)name, len}, {"", 1}};
	if (memchr(name, '\0', len) != NULL) {
		return true; /* an anonymous class, or a pattern that is no text */
	}
	ssize_t size = (ssize_t)(len + 2);
	if (pwritev(HY_FD_CLASSES, parts, 3, (off_t)*at) != size) {
		return false;
	}
	*at += (size_t)size;
	return true;
}

/* Bytes of all records. */
#define MOST_NAMES ((off_t)4 << 20)
#define CLASS 'c'
#define PATTERN 'p'

/* Classes that came after the boot's and patterns that PCRE has compiled, for a boot to come, behind the first `at`
 * bytes of those that are known. */
static void remember_names(size_t at)
{
	bool noted = true;
	for (uint32_t i = booted_classes; noted && i < EG(class_table)->nNumUsed; i++) {
		const Bucket *bucket = EG(class_table)->arData + i;
		if (Z_TYPE(bucket->val) != IS_PTR || bucket->key == NULL) {
			continue;
		}
		const zend_class_entry *class = Z_PTR(bucket->val);
		/* Declarations that have not run yet have a zero in their keys. */
		if (class->type == ZEND_USER_CLASS && ZSTR_VAL(bucket->key)[0] != '\0') {
			noted = note(&at, CLASS, ZSTR_VAL(class->name), ZSTR_LEN(class->name));
		}
	}
	zend_string *pattern;
	/* Where there is a locale it stands in the key as well. */
	if (noted && BG(ctype_string) == NULL) {
		ZEND_HASH_FOREACH_STR_KEY(&PCRE_G(pcre_cache), pattern)
		{
			noted = noted && (pattern == NULL || note(&at, PATTERN, ZSTR_VAL(pattern), ZSTR_LEN(pattern)));
		}
		ZEND_HASH_FOREACH_END();
	}
	if (ftruncate(HY_FD_CLASSES, (off_t)at) != 0) {
		log_format("The names of classes to load could not be noted: %s", strerror(errno));
	}
}

/* Without a comparison that went well nothing tells that a front controller does not depend on a request. */
static enum hy_again instead(enum hy_again of_warmup)
{
	return front_controller_boots() ? HY_AGAIN_CLASSIC : of_warmup;
}

void warmup_failed(const char *why, bool fatal)
{
	remember_names(0);
	boot_again(instead(HY_AGAIN_COLD), why, fatal);
}

void warmup_differs(const char *why)
{
	remember_names(0);
	boot_again(instead(HY_AGAIN_DIFFERS), why, false);
}

void warmup_add_classes(void)
{
	struct stat st;
	if (fstat(HY_FD_CLASSES, &st) == 0 && st.st_size >= 0) {
		remember_names((size_t)st.st_size);
	}
}

static void load_class(const char *name, size_t len)
{
	zend_string *class = zend_string_init(name, len, false);
	zend_lookup_class(class);
	zend_string_release(class);
	if (EG(exception) != NULL) {
		zend_clear_exception(); /* it loads in a request only, or not any more */
	}
}

static void compile_pattern(const char *pattern, size_t len)
{
	zend_string *regex = zend_string_init(pattern, len, false);
	pcre_get_compiled_regex_cache(regex);
	zend_string_release(regex);
}

/* Calls a function of spl's with one autoloader, or with none. */
static void call_spl(const char *name, zval *result, zval *autoloader)
{
	zval function;
	ZVAL_STRING(&function, name);
	ZVAL_UNDEF(result);
	if (call_user_function(NULL, NULL, &function, result, autoloader != NULL, autoloader) == FAILURE) {
		ZVAL_NULL(result);
	}
	zval_ptr_dtor(&function);
}

static bool is_own_autoloader(zval *autoloader)
{
	zend_fcall_info_cache known;
	return zend_is_callable_ex(autoloader, NULL, IS_CALLABLE_SUPPRESS_DEPRECATIONS, NULL, &known, NULL) &&
	       ZEND_USER_CODE(known.function_handler->type) &&
	       asked_once_is_own(known.function_handler->op_array.filename);
}

/* The project's own autoloaders may go by a request: what they load is left to requests. Takes them away, or with
 * `all`, which it gives first, puts them back in their order. */
static void set_autoloaders(zval *all, bool own)
{
	zval *one, ignored;
	if (!own && learn_elsewhere()) {
		call_spl("spl_autoload_functions", all, NULL);
	} else if (!own) {
		ZVAL_NULL(all);
	}
	if (Z_TYPE_P(all) != IS_ARRAY) {
		return;
	}
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(all), one)
	{
		if (own || is_own_autoloader(one)) {
			call_spl("spl_autoload_unregister", &ignored, one);
			zval_ptr_dtor(&ignored);
		}
	}
	ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(all), one)
	{
		if (own) {
			call_spl("spl_autoload_register", &ignored, one);
			zval_ptr_dtor(&ignored);
		}
	}
	ZEND_HASH_FOREACH_END();
}

void warmup_load_classes(void)
{
	struct stat st;
	booted_classes = EG(class_table)->nNumUsed;
	bool by_name = options.warmup_count == 0 || learn_elsewhere();
	if (!by_name || options.rewind == REWIND_OFF || fstat(HY_FD_CLASSES, &st) != 0 || st.st_size == 0) {
		return;
	}
	/* Workers could make it larger. */
	size_t size = (size_t)MIN(st.st_size, MOST_NAMES);
	char *names = emalloc(size + 1);
	ssize_t n = pread(HY_FD_CLASSES, names, size, 0);
	const char *end = names + MAX(n, 0);
	names[end - names] = '\0';
	zval autoloaders;
	set_autoloaders(&autoloaders, false);
	/* One that ends the script is not on the next list: that has what was loaded before it. */
	for (const char *record = names; record < end; record += strlen(record) + 1) {
		if (record[0] == CLASS) {
			load_class(record + 1, strlen(record + 1));
		} else if (record[0] == PATTERN) {
			compile_pattern(record + 1, strlen(record + 1));
		}
	}
	efree(names);
	set_autoloaders(&autoloaders, true);
	zval_ptr_dtor(&autoloaders);
	locks_lend(); /* those that code of their files took: whoever finds it loaded counts on having them */
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

void warmup_request_over(void)
{
	residue_of_handler();
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
