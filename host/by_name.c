/*
 * Classes and regular expressions by their names: what warm-up requests needed is loaded and compiled at the end of a
 * boot that handles none of them in its own process. That is most of what a first visitor would pay for, and does what
 * autoloaders do and nothing else.
 *
 * In a project of which nobody has looked at more than the boot (learn.c), what may go by a request is left to
 * requests: what the project's own autoloaders load, and its files that do more than declare something.
 */
#include "host.h"
#include "syntax.h"

#include "ext/pcre/php_pcre.h"
#include "ext/standard/basic_functions.h"
#include "zend_exceptions.h"
#include "zend_language_scanner.h"
#include "zend_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
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

/* Bytes of all records. */
#define MOST_NAMES ((off_t)4 << 20)
#define CLASS 'c'
#define PATTERN 'p'

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

static bool only_declares(zend_ast *statements)
{
	bool only = true;
	uint32_t count;
	zend_ast **statement = ast_children(statements, &count);
	for (uint32_t i = 0; only && i < count; i++) {
		zend_ast *one = statement[i];
		if (one == NULL) {
			continue;
		}
		switch (one->kind) {
		case ZEND_AST_STMT_LIST:
			only = only_declares(one);
			break;
		case ZEND_AST_NAMESPACE:
		case ZEND_AST_DECLARE:
			only = one->child[1] == NULL || one->child[1]->kind != ZEND_AST_STMT_LIST || only_declares(one->child[1]);
			break;
		case ZEND_AST_USE:
		case ZEND_AST_GROUP_USE:
		case ZEND_AST_CLASS:
		case ZEND_AST_FUNC_DECL:
		case ZEND_AST_CONST_DECL:
			break;
		default:
			only = false;
		}
	}
	return only;
}

/* Whether a file does nothing but declare classes, functions and constants; false: perhaps it does more. */
static bool file_only_declares(zend_file_handle *in)
{
	char *text;
	size_t len;
	if (zend_stream_fixup(in, &text, &len) == FAILURE) {
		return false;
	}
	zend_string *code = zend_string_init(text, len, false);
	zend_arena *arena = NULL;
	zend_ast *ast = zend_compile_string_to_ast(code, &arena, in->filename);
	zend_string_release(code);
	bool only = ast != NULL && ast->kind == ZEND_AST_STMT_LIST && only_declares(ast);
	if (ast != NULL) {
		zend_ast_destroy(ast);
		zend_arena_destroy(arena);
	}
	if (EG(exception) != NULL) {
		zend_clear_exception(); /* the request that needs it says so */
	}
	return only;
}

static zend_op_array *(*compile_all)(zend_file_handle *, int);

/* Of another file nothing: it has not been included, then. */
static zend_op_array *compile_declarations(zend_file_handle *in, int type)
{
	const zend_string *path = in->opened_path != NULL ? in->opened_path : in->filename;
	if (!asked_once_is_own(path) || file_only_declares(in)) {
		return compile_all(in, type);
	}
	zend_hash_del(&EG(included_files), (zend_string *)path);
	zend_string *nothing = ZSTR_EMPTY_ALLOC();
	return zend_compile_string(nothing, ZSTR_VAL(path), ZEND_COMPILE_POSITION_AFTER_OPEN_TAG);
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
	zval autoloaders;
	set_autoloaders(&autoloaders, false);
	compile_all = zend_compile_file;
	zend_compile_file = learn_elsewhere() ? compile_declarations : compile_all;
	/* One that ends the script is not on the next list: that has what was loaded before it. */
	for (const char *record = names; record < end; record += strlen(record) + 1) {
		if (record[0] == CLASS) {
			load_class(record + 1, strlen(record + 1));
		} else if (record[0] == PATTERN) {
			compile_pattern(record + 1, strlen(record + 1));
		}
	}
	efree(names);
	zend_compile_file = compile_all;
	set_autoloaders(&autoloaders, true);
	zval_ptr_dtor(&autoloaders);
	locks_lend(); /* those that code of their files took: whoever finds it loaded counts on having them */
}
