/*
 * Classes and regular expressions by their names: what warm-up requests needed is loaded and compiled at the end of a
 * boot that handles none of them in its own process. That is most of what a first visitor would pay for.
 *
 * A class is loaded from the file that it came from, and no autoloader is asked. Only from a file that does nothing but
 * declare that class, and so do those of all that it is made from (declares.c): any other could open a connection,
 * which all workers would share, or go by a request. An application's own classes are left to requests as well, for one
 * of them may declare another one of that name, or ask whether it has set something up; what frameworks generate is not
 * a project's own. Nothing is loaded there where an autoloader that may do more than to include
 * files (autoloaders.c) is asked before others.
 *
 * Everything is tried out in a process of its own before: a class that does not fit its interface ends PHP, and would
 * end each boot.
 */
#include "host.h"
#include "stray.h"

#include "ext/pcre/php_pcre.h"
#include "ext/standard/basic_functions.h"
#include "zend_exceptions.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* How many classes there were at the end of the boot, and before those that are still to be noted. */
static uint32_t booted_classes, noted_classes;

/* To try out what is loaded. */
#define SECONDS 10
/* Bytes of all records. */
#define MOST_NAMES ((off_t)4 << 20)
/* Kinds of records. */
#define FILE_OF 'f'
#define CLASS 'c'
#define PATTERN 'p'
/* Of a class that is not to be loaded, or of IN_THE_WAY_ALL or IN_THE_WAY_TEMPLATES. */
#define NOT 'n'

/* Where the next record goes, and which classes and patterns there are; false: no more can be noted. */
struct list {
	off_t at;
	HashTable known;
	bool good;
};

/* One record of what a boot to come prepares by name: its kind and the name, which ends with a zero. Where classes are
 * loaded from their files, a class follows its file. */
static void note(struct list *list, char kind, const char *name, size_t len)
{
	struct iovec parts[] = {{&kind, 1}, {(char *)name, len}, {"", 1}};
	ssize_t size = (ssize_t)(len + 2);
	list->good = list->good && list->at + size <= MOST_NAMES && pwritev(HY_FD_CLASSES, parts, 3, list->at) == size;
	list->at += list->good ? size : 0;
}

/* Whether it is not on the list, which it is from now on. */
static bool is_new(struct list *list, char kind, const zend_string *name)
{
	if (memchr(ZSTR_VAL(name), '\0', ZSTR_LEN(name)) != NULL) {
		return false; /* an anonymous class, or a pattern that is no text */
	}
	zend_string *key = zend_string_alloc(ZSTR_LEN(name) + 1, false);
	ZSTR_VAL(key)[0] = kind;
	memcpy(ZSTR_VAL(key) + 1, ZSTR_VAL(name), ZSTR_LEN(name) + 1);
	bool new = zend_hash_add_empty_element(&list->known, key) != NULL;
	zend_string_release(key);
	return new;
}

/* Below it lies code that the framework has generated, such as a compiled container. */
static char generated_below[PATH_MAX];

static bool is_generated(const char *file)
{
	size_t len = strlen(generated_below);
	return len > 0 && strncmp(file, generated_below, len) == 0 && file[len] == '/';
}

/* Whether the project may have another file for another request. */
bool by_name_is_for_requests(const zend_string *file)
{
	char resolved[PATH_MAX];
	/* PHP has resolved the names of files that it includes, unless they have `..` in them: then one may seem to lie
	 * elsewhere. Requests ask this often, so those are looked up alone. */
	const char *path = file == NULL ? NULL : ZSTR_VAL(file);
	if (path != NULL && (path[0] != '/' || strstr(path, "/.") != NULL)) {
		path = realpath(path, resolved);
	}
	if (path == NULL) {
		return true;
	}
	return learn_elsewhere() ? !is_generated(path) && owner_is_project(path) : !owner_seems_package(path);
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

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_generated, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, directory, IS_STRING, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry of_boot_scripts[] = {ZEND_NS_FE("Hayate\\Boot", generated, arginfo_generated)
                                                          ZEND_FE_END};

void by_name_startup(void)
{
	if (options_is_project()) {
		functions_of_boot_scripts(of_boot_scripts);
	}
}

/* Its place in the table of classes, which says when it came; UINT32_MAX: it is not there by its name. */
static uint32_t place_of(const zend_class_entry *class)
{
	zend_string *key = zend_string_tolower(class->name);
	const zval *at = zend_hash_find(EG(class_table), key);
	zend_string_release(key);
	return at == NULL || Z_PTR_P(at) != class ? UINT32_MAX : (uint32_t)((const Bucket *)at - EG(class_table)->arData);
}

/* Its file is run as a whole, and another class of it is one that nobody would find by its name. */
static bool is_alone_in_its_file(const zend_class_entry *class)
{
	for (uint32_t i = booted_classes; i < EG(class_table)->nNumUsed; i++) {
		const Bucket *bucket = EG(class_table)->arData + i;
		const zend_class_entry *other = Z_TYPE(bucket->val) == IS_PTR ? Z_PTR(bucket->val) : NULL;
		if (other != NULL && other != class && other->type == ZEND_USER_CLASS &&
		    (other->ce_flags & ZEND_ACC_ANON_CLASS) == 0 &&
		    zend_string_equals(other->info.user.filename, class->info.user.filename)) {
			return false;
		}
	}
	return true;
}

static bool may_be_ahead(const zend_class_entry *class);

/* One that its file has loaded as well; there is none, or what that has done is nothing either. */
static bool hint_may_be_ahead(const char *name)
{
	static const char *asking[16];
	static size_t depth;
	const zend_class_entry *class = zend_hash_str_find_ptr(EG(class_table), name, strlen(name));
	for (size_t i = 0; i < depth; i++) {
		if (strcmp(asking[i], name) == 0) {
			return true; /* it leads here, and is being looked at */
		}
	}
	if (class == NULL || depth == sizeof asking / sizeof asking[0]) {
		return class == NULL;
	}
	asking[depth++] = name;
	bool may = may_be_ahead(class);
	depth--;
	return may;
}

/* Whether it may be there before the requests: where what its file does is to declare it, and that is so of all that it
 * is made from. */
static bool may_be_ahead(const zend_class_entry *class)
{
	if (class == NULL) {
		return false;
	}
	if (class->type != ZEND_USER_CLASS || place_of(class) < booted_classes) {
		return true;
	}
	if ((class->ce_flags & ZEND_ACC_LINKED) == 0 || by_name_is_for_requests(class->info.user.filename) ||
	    !declares_only(class, is_generated(ZSTR_VAL(class->info.user.filename))) || !is_alone_in_its_file(class)) {
		return false;
	}
	bool may = class->parent == NULL || may_be_ahead(class->parent);
	for (uint32_t i = 0; may && i < class->num_interfaces; i++) {
		may = may_be_ahead(class->interfaces[i]);
	}
	for (uint32_t i = 0; may && i < class->num_traits; i++) {
		may = may_be_ahead(zend_hash_find_ptr(EG(class_table), class->trait_names[i].lc_name));
	}
	char **hints;
	size_t count = may ? declares_hints(class->info.user.filename, &hints) : 0;
	for (size_t i = 0; may && i < count; i++) {
		may = hint_may_be_ahead(hints[i]);
	}
	return may;
}

static void note_class(struct list *list, const zend_class_entry *class)
{
	const zend_string *file = class->info.user.filename;
	if (!may_be_ahead(class) || !is_new(list, CLASS, class->name)) {
		return;
	}
	note(list, FILE_OF, ZSTR_VAL(file), ZSTR_LEN(file));
	note(list, CLASS, ZSTR_VAL(class->name), ZSTR_LEN(class->name));
}

/* Classes that came after the boot's and patterns that PCRE has compiled, for a boot to come. */
static void remember(struct list *list)
{
	for (uint32_t i = noted_classes; i < EG(class_table)->nNumUsed; i++) {
		const Bucket *bucket = EG(class_table)->arData + i;
		if (Z_TYPE(bucket->val) != IS_PTR || bucket->key == NULL) {
			continue;
		}
		const zend_class_entry *class = Z_PTR(bucket->val);
		/* Declarations that have not run yet have a zero in their keys. */
		if (class->type == ZEND_USER_CLASS && ZSTR_VAL(bucket->key)[0] != '\0') {
			note_class(list, class);
		}
	}
	noted_classes = EG(class_table)->nNumUsed;
	zend_string *asked;
	ZEND_HASH_FOREACH_STR_KEY(in_the_way_asked(), asked)
	{
		if (is_new(list, NOT, asked)) {
			note(list, NOT, ZSTR_VAL(asked), ZSTR_LEN(asked));
		}
	}
	ZEND_HASH_FOREACH_END();
	zend_string *pattern;
	/* Where there is a locale it stands in the key as well. */
	if (BG(ctype_string) == NULL) {
		ZEND_HASH_FOREACH_STR_KEY(&PCRE_G(pcre_cache), pattern)
		{
			if (pattern != NULL && is_new(list, PATTERN, pattern)) {
				note(list, PATTERN, ZSTR_VAL(pattern), ZSTR_LEN(pattern));
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	if (ftruncate(HY_FD_CLASSES, list->at) != 0) {
		log_format("The names of classes to load could not be noted: %s", strerror(errno));
	}
}

/* All records, with a zero behind the last one; NULL: there is none. */
static char *read_names(const char **end)
{
	struct stat st;
	if (fstat(HY_FD_CLASSES, &st) != 0 || st.st_size <= 0) {
		return NULL;
	}
	/* Workers could make it larger. */
	size_t size = (size_t)MIN(st.st_size, MOST_NAMES);
	char *names = emalloc(size + 1);
	ssize_t n = pread(HY_FD_CLASSES, names, size, 0);
	*end = names + MAX(n, 0);
	names[*end - names] = '\0';
	return names;
}

void by_name_remember(void)
{
	/* Processes that answered have noted what they had. */
	if (!learn_elsewhere()) {
		struct list list = {.good = true};
		zend_hash_init(&list.known, 64, NULL, NULL, false);
		remember(&list);
		zend_hash_destroy(&list.known);
	}
}

void by_name_forget(void)
{
	(void)!ftruncate(HY_FD_CLASSES, 0);
}

void by_name_add(void)
{
	/* Workers that boot by themselves have one list. Whoever writes it at this moment notes the same. */
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fcntl(HY_FD_CLASSES, F_SETLK, &lock) != 0) {
		return;
	}
	const char *end;
	char *names = read_names(&end);
	struct list list = {.at = names == NULL ? 0 : end - names, .good = true};
	zend_hash_init(&list.known, 64, NULL, NULL, false);
	for (const char *record = names; record != NULL && record < end; record += strlen(record) + 1) {
		zend_hash_str_add_empty_element(&list.known, record, strlen(record));
	}
	remember(&list);
	zend_hash_destroy(&list.known);
	if (names != NULL) {
		efree(names);
	}
	lock.l_type = F_UNLCK;
	fcntl(HY_FD_CLASSES, F_SETLK, &lock);
}

/* ---- loading ---- */

/* Whether something did not load, as a class whose parent is not there: it loads in a request only, or not any more. */
static bool failed;

/* Names in lower case of classes that are left to requests, and with them what is made from them. */
static HashTable left_out;
static bool wants_left_out;

static void lost(void)
{
	if (EG(exception) != NULL) {
		zend_clear_exception();
		failed |= !wants_left_out;
	}
	wants_left_out = false;
}

static void compile_pattern(const char *pattern, size_t len)
{
	zend_string *regex = zend_string_init(pattern, len, false);
	pcre_get_compiled_regex_cache(regex);
	zend_string_release(regex);
}

/* Where classes come from, by their names in lower case; and what includes such a file in a scope of its own. */
static HashTable files;
static zval include;

static void include_file(const char *name)
{
	zval argument, result;
	ZVAL_STRING(&argument, name);
	ZVAL_UNDEF(&result);
	if (zend_hash_str_add_empty_element(&files, name, strlen(name)) != NULL) { /* not yet: a class has no slash */
		call_user_function(NULL, NULL, &include, &result, 1, &argument);
		if (EG(exception) != NULL) {
			zend_hash_del(&EG(included_files), Z_STR(argument)); /* a request that includes it once does include it */
		}
	}
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&argument);
}

/* In place of all autoloaders: what a class is made from. */
static zend_class_entry *load_known(zend_string *name, zend_string *key)
{
	const char *file = zend_hash_find_ptr(&files, key);
	if (file == NULL) {
		wants_left_out |= zend_hash_exists(&left_out, key);
		return NULL;
	}
	include_file(file);
	return EG(exception) != NULL ? NULL : zend_hash_find_ptr(EG(class_table), key);
}

static void load_from_files(const char *names, const char *end)
{
	static const char code[] = "static function (): void { require func_get_arg(0); }";
	const char *file = NULL;
	zend_hash_init(&files, 256, NULL, NULL, false);
	zend_hash_init(&left_out, 8, NULL, NULL, false);
	for (const char *record = names; record < end; record += strlen(record) + 1) {
		if (record[0] == NOT) {
			zend_hash_str_add_empty_element(&left_out, record + 1, strlen(record + 1));
		}
	}
	bool all = !zend_hash_str_exists(&left_out, ZEND_STRL(IN_THE_WAY_ALL));
	bool templates = !zend_hash_str_exists(&left_out, ZEND_STRL(IN_THE_WAY_TEMPLATES));
	for (const char *record = names; all && record < end; record += strlen(record) + 1) {
		if (record[0] == FILE_OF) {
			file = record + 1;
		} else if (record[0] == CLASS && file != NULL) {
			zend_string *key = zend_string_init(record + 1, strlen(record + 1), false);
			zend_str_tolower(ZSTR_VAL(key), ZSTR_LEN(key));
			bool is_template = strncmp(ZSTR_VAL(key), "__twigtemplate_", strlen("__twigtemplate_")) == 0;
			if (!zend_hash_exists(&left_out, key) && (templates || !is_template)) {
				zend_hash_add_ptr(&files, key, (void *)(uintptr_t)file);
			}
			zend_string_release(key);
		}
	}
	zend_class_entry *(*autoload)(zend_string *, zend_string *) = zend_autoload;
	zval handler;
	int reporting = EG(error_reporting);
	/* What is deprecated in them is for the log of a request that uses it. */
	ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	EG(error_reporting) = 0;
	zend_autoload = load_known;
	if (zend_eval_stringl(code, sizeof code - 1, &include, "Hayate") == SUCCESS) {
		for (const char *record = names; record < end; record += strlen(record) + 1) {
			if (record[0] == CLASS) {
				zend_string *class = zend_string_init(record + 1, strlen(record + 1), false);
				zend_lookup_class(class);
				zend_string_release(class);
				lost();
			}
		}
		zval_ptr_dtor(&include);
	}
	lost();
	zend_autoload = autoload;
	EG(error_reporting) = reporting;
	ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
	zend_hash_destroy(&files);
	zend_hash_destroy(&left_out);
}

/* Whether classes may be loaded without their autoloaders. */
static bool without_autoloaders;

static void load_all(const char *names, const char *end)
{
	if (without_autoloaders) {
		load_from_files(names, end);
	}
	for (const char *record = names; record < end; record += strlen(record) + 1) {
		if (record[0] == PATTERN) {
			compile_pattern(record + 1, strlen(record + 1));
		}
	}
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
			status = failed ? 1 : 0;
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
	booted_classes = noted_classes = EG(class_table)->nNumUsed;
	if (options.rewind != REWIND_OFF && !learn_elsewhere()) {
		declares_note(); /* warm-up requests follow in this process */
		if (options.warmup_count > 0) {
			in_the_way_note();
		}
	}
	without_autoloaders = !options.classes_later && autoloaders_may_be_passed_over();
	bool by_name = options.rewind != REWIND_OFF && (options.warmup_count == 0 || learn_elsewhere());
	const char *end;
	char *names = by_name ? read_names(&end) : NULL;
	if (names == NULL) {
		return;
	}
	if (comes_back(names, end)) {
		load_all(names, end);
	} else {
		log_format("What warm-up requests have loaded cannot be loaded by name, for one of its classes does not load "
		           "so, or it "
		           "takes more than %d s: each request loads it by itself.",
		           SECONDS);
	}
	efree(names);
	in_the_way_may_be(booted_classes, EG(class_table)->nNumUsed);
	booted_classes = noted_classes = EG(class_table)->nNumUsed;
	locks_lend(); /* those that code of their files took: whoever finds it loaded counts on having them */
}
