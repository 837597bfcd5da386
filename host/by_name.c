/*
 * Classes and regular expressions by their names: what warm-up requests needed is loaded and compiled at the end of a
 * boot that handles none of them in its own process. That is most of what a first visitor would pay for, and does what
 * autoloaders do and nothing else.
 *
 * In a project of which nobody has looked at more than the boot (learn.c), what may go by a request is left to
 * requests: its own classes, for a request may declare another one of that name, or come to it by what it has set
 * before, and what its own autoloaders load. What frameworks generate is not its own. There everything is tried out in
 * a process of its own before: a class that does not fit its interface ends PHP, and would end each boot.
 */
#include "host.h"
#include "stray.h"

#include "ext/pcre/php_pcre.h"
#include "ext/standard/basic_functions.h"
#include "zend_exceptions.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* To try out what is loaded. */
#define SECONDS 10
/* Bytes of all records. */
#define MOST_NAMES ((off_t)4 << 20)
#define CLASS 'c'
#define PATTERN 'p'

/* Below it lies code that the framework has generated, such as a compiled container. */
static char generated_below[PATH_MAX];

/* Whether requests alone may load a class of this file. */
static bool is_for_requests(const zend_string *file)
{
	char path[PATH_MAX];
	if (!learn_elsewhere()) {
		return false;
	}
	/* As it is included it may have `..` in it, and seem to lie elsewhere. */
	if (file == NULL || realpath(ZSTR_VAL(file), path) == NULL) {
		return true;
	}
	size_t len = strlen(generated_below);
	if (len > 0 && strncmp(path, generated_below, len) == 0 && path[len] == '/') {
		return false;
	}
	zend_string *resolved = zend_string_init(path, strlen(path), false);
	bool own = asked_once_is_own(resolved);
	zend_string_release(resolved);
	return own;
}

/* generated(string $directory): void: what lies there the framework has generated. */
static PHP_FUNCTION(generated)
{
	zend_string *directory;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_PATH_STR(directory)
	ZEND_PARSE_PARAMETERS_END();
	if (!handle_reached() && realpath(ZSTR_VAL(directory), generated_below) == NULL) {
		generated_below[0] = '\0';
	}
}

/* is_for_requests(string $file): bool: whether requests alone may load a class of this file. */
static PHP_FUNCTION(is_for_requests)
{
	zend_string *file;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_PATH_STR(file)
	ZEND_PARSE_PARAMETERS_END();
	RETURN_BOOL(is_for_requests(file));
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_generated, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, directory, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_is_for_requests, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, file, IS_STRING, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry of_boot_scripts[] = {
    ZEND_NS_FE("Hayate\\Boot", generated, arginfo_generated)
        ZEND_NS_FE("Hayate\\Boot", is_for_requests, arginfo_is_for_requests) ZEND_FE_END};

void by_name_startup(void)
{
	if (options_is_project()) {
		functions_of_boot_scripts(of_boot_scripts);
	}
}

/* Classes that came after the boot's and patterns that PCRE has compiled, for a boot to come, behind the first `at`
 * bytes of those that are known. */
static void remember(size_t at)
{
	bool noted = true;
	for (uint32_t i = booted_classes; noted && i < EG(class_table)->nNumUsed; i++) {
		const Bucket *bucket = EG(class_table)->arData + i;
		if (Z_TYPE(bucket->val) != IS_PTR || bucket->key == NULL) {
			continue;
		}
		const zend_class_entry *class = Z_PTR(bucket->val);
		/* Declarations that have not run yet have a zero in their keys. */
		if (class->type == ZEND_USER_CLASS && ZSTR_VAL(bucket->key)[0] != '\0' &&
		    !is_for_requests(class->info.user.filename)) {
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

void by_name_remember(void)
{
	remember(0);
}

void by_name_add(void)
{
	struct stat st;
	if (fstat(HY_FD_CLASSES, &st) == 0 && st.st_size >= 0) {
		remember((size_t)st.st_size);
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
	       ZEND_USER_CODE(known.function_handler->type) && asked_once_is_own(known.function_handler->op_array.filename);
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

static void load_all(const char *names, const char *end)
{
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
	set_autoloaders(&autoloaders, true);
	zval_ptr_dtor(&autoloaders);
}

/* Whether a process comes back from all of it. */
static bool comes_back(const char *names, const char *end)
{
	pid_t pid = host_fork();
	if (pid == 0) {
		fork_be_silent(false);
		opcache_after_fork();
		signal(SIGALRM, SIG_DFL);
		alarm(SECONDS);
		volatile int status = 1;
		zend_try
		{
			load_all(names, end);
			status = 0;
		}
		zend_end_try();
		_exit(status);
	}
	int status = 1;
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	rewind_child_over();
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void by_name_load(void)
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
	if (!learn_elsewhere() || comes_back(names, end)) {
		load_all(names, end);
	} else {
		log_format(
		    "What warm-up requests have loaded cannot be loaded by name, for it ends PHP, or takes more than %d s: "
		    "each request loads it by itself.",
		    SECONDS);
	}
	efree(names);
	locks_lend(); /* those that code of their files took: whoever finds it loaded counts on having them */
}
