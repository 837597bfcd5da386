/*
 * What warm-up requests leave in the process besides their application: static properties and variables, globals,
 * constants, and what PHP itself puts back at the end of each request (locale, environment, autoloaders, stream
 * wrappers).
 *
 * In a boot of ours (php/boot/) warm-up requests are handled by an application that is thrown away, but what is static
 * stays: `static $locale ??= $request->...` would hold for all visitors. So all of this is looked at before the first
 * of them, and after each one, before an application is booted again. What then has another value, and had the one that
 * it begins with, gets that back. What the boot had set itself, and what cannot be put back, is a reason to boot again
 * without warm-up requests, where it is the project's own.
 *
 * It compares values, and of objects the class. Of libraries only switches and names are looked at, no lists and
 * objects: what they have computed they keep in these.
 */
#include "host.h"

#include "ext/standard/file.h"
#include "zend_constants.h"

#include <locale.h>
#include <unistd.h>

/* Of what nobody can tell: an expression that has not been computed yet. */
#define UNKNOWN 0

/* Names of what has a value, and its hash. */
static HashTable before;
static bool known;

static uint64_t hash_of(zval *value)
{
	ZVAL_DEREF(value);
	return Z_TYPE_P(value) == IS_CONSTANT_AST ? UNKNOWN : residue_state_of(value);
}

struct look {
	bool is_first;
	/* What has changed and is not put back; empty: nothing. */
	char found[256];
};

enum change { NONE, CHANGED, CHANGED_FROM_FRESH };

/* Notes it, or says whether it has another value than was noted. What was not there then had `fresh`, with which it
 * begins; NULL: it was not there at all. */
static enum change look_at(const struct look *look, const char *name, zval *value, zval *fresh)
{
	uint64_t hash = hash_of(value);
	size_t len = strlen(name);
	if (look->is_first) {
		zval noted;
		ZVAL_LONG(&noted, (zend_long)hash);
		zend_hash_str_update(&before, name, len, &noted);
		return NONE;
	}
	const zval *noted = zend_hash_str_find(&before, name, len);
	uint64_t begins = fresh != NULL ? hash_of(fresh) : UNKNOWN,
	         was = noted != NULL ? (uint64_t)Z_LVAL_P(noted) : begins;
	if (noted == NULL && fresh == NULL) {
		return CHANGED_FROM_FRESH;
	}
	if (hash == was || hash == UNKNOWN || was == UNKNOWN) {
		return NONE;
	}
	return was == begins ? CHANGED_FROM_FRESH : CHANGED;
}

static void tell(struct look *look, const char *name)
{
	if (look->found[0] == '\0') {
		snprintf(look->found, sizeof look->found, "%s", name);
	}
}

static void put_back(zval *value, zval *fresh)
{
	zval left;
	ZVAL_DEREF(value);
	ZVAL_COPY_VALUE(&left, value);
	ZVAL_COPY_OR_DUP(value, fresh);
	zval_ptr_dtor(&left);
}

static void look_at_function(struct look *look, const zend_op_array *function, const char *of)
{
	if (function->static_variables == NULL || !asked_once_is_own(function->filename)) {
		return;
	}
	HashTable *values = ZEND_MAP_PTR_GET(function->static_variables_ptr);
	if (values == NULL) {
		return; /* it has not run */
	}
	zend_string *variable;
	zval *value;
	ZEND_HASH_FOREACH_STR_KEY_VAL(values, variable, value)
	{
		char name[512];
		snprintf(name, sizeof name, "static $%s of %s%s%s()", ZSTR_VAL(variable), of, of[0] != '\0' ? "::" : "",
		         function->function_name != NULL ? ZSTR_VAL(function->function_name) : "");
		zval *fresh = zend_hash_find(function->static_variables, variable);
		enum change change = look_at(look, name, value, fresh);
		if (change == CHANGED_FROM_FRESH && fresh != NULL && Z_TYPE_P(value) != IS_INDIRECT) {
			put_back(value, fresh);
		} else if (change != NONE) {
			tell(look, name);
		}
	}
	ZEND_HASH_FOREACH_END();
}

static void look_at_functions(struct look *look, HashTable *functions, const char *of)
{
	const zend_function *function;
	ZEND_HASH_FOREACH_PTR(functions, function)
	{
		if (function->type == ZEND_USER_FUNCTION) {
			look_at_function(look, &function->op_array, of);
		}
	}
	ZEND_HASH_FOREACH_END();
}

/* What a library has computed is a list or an object; a switch or a name that it was told is neither. */
static bool is_setting(zval *value)
{
	ZVAL_DEREF(value);
	return Z_TYPE_P(value) < IS_ARRAY;
}

static void look_at_class(struct look *look, zend_class_entry *class)
{
	bool own = asked_once_is_own(class->info.user.filename);
	zval *values = class->default_static_members_count > 0 ? CE_STATIC_MEMBERS(class) : NULL;
	const zend_property_info *property;
	zend_string *property_name;
	ZEND_HASH_FOREACH_STR_KEY_PTR(&class->properties_info, property_name, property)
	{
		if (values == NULL || (property->flags & ZEND_ACC_STATIC) == 0 || property->ce != class) {
			continue;
		}
		zval *value = &values[property->offset], *fresh = &class->default_static_members_table[property->offset];
		if (Z_TYPE_P(value) != IS_INDIRECT && Z_TYPE_P(fresh) != IS_INDIRECT &&
		    (own || look->is_first || is_setting(value))) {
			char name[512];
			snprintf(name, sizeof name, "%s::$%s", ZSTR_VAL(class->name), ZSTR_VAL(property_name));
			enum change change = look_at(look, name, value, fresh);
			if (change == CHANGED_FROM_FRESH) {
				put_back(value, fresh);
			} else if (change == CHANGED && own) {
				tell(look, name);
			}
		}
	}
	ZEND_HASH_FOREACH_END();
	if (own) {
		look_at_functions(look, &class->function_table, ZSTR_VAL(class->name));
	}
}

static void look_at_code(struct look *look)
{
	zend_class_entry *class;
	ZEND_HASH_FOREACH_PTR(EG(class_table), class)
	{
		if (class->type == ZEND_USER_CLASS && (class->ce_flags & ZEND_ACC_LINKED) != 0) {
			look_at_class(look, class);
		}
	}
	ZEND_HASH_FOREACH_END();
	look_at_functions(look, EG(function_table), "");
}

static void look_at_names(struct look *look)
{
	zend_string *key;
	zval *value;
	ZEND_HASH_FOREACH_STR_KEY_VAL_IND(&EG(symbol_table), key, value)
	{
		/* $_SERVER and its kin are each request's own. */
		if (key != NULL && ZSTR_VAL(key)[0] != '_' && !zend_string_equals_literal(key, "argv") &&
		    !zend_string_equals_literal(key, "argc") && Z_TYPE_P(value) != IS_UNDEF) {
			char name[256];
			snprintf(name, sizeof name, "$GLOBALS['%s']", ZSTR_VAL(key));
			enum change change = look_at(look, name, value, NULL);
			if (change == CHANGED_FROM_FRESH) {
				zend_hash_del_ind(&EG(symbol_table), key);
			} else if (change != NONE) {
				tell(look, name);
			}
		}
	}
	ZEND_HASH_FOREACH_END();
	zend_constant *constant;
	ZEND_HASH_FOREACH_STR_KEY_PTR(EG(zend_constants), key, constant)
	{
		if (key != NULL && ZEND_CONSTANT_MODULE_NUMBER(constant) == PHP_USER_CONSTANT) {
			char name[256];
			snprintf(name, sizeof name, "the constant %s", ZSTR_VAL(key));
			if (look_at(look, name, &constant->value, NULL) != NONE) {
				tell(look, name); /* compiled code may point to it */
			}
		}
	}
	ZEND_HASH_FOREACH_END();
}

/* How many callbacks a function lists. */
static zend_ulong listed_by(const char *function)
{
	zval name, list;
	ZVAL_STRING(&name, function);
	zend_ulong count = 0;
	if (call_user_function(NULL, NULL, &name, &list, 0, NULL) == SUCCESS) {
		count = Z_TYPE(list) == IS_ARRAY ? zend_hash_num_elements(Z_ARRVAL(list)) : 0;
		zval_ptr_dtor(&list);
	}
	zval_ptr_dtor(&name);
	return count;
}

static void look_at_part(struct look *look, const char *name, zval *value)
{
	if (look_at(look, name, value, NULL) != NONE) {
		tell(look, name);
	}
}

static void look_at_process(struct look *look)
{
	zval value;
	const char *locale = setlocale(LC_ALL, NULL);
	ZVAL_STRING(&value, locale != NULL ? locale : "");
	look_at_part(look, "the locale (setlocale())", &value);
	zval_ptr_dtor(&value);
	uint64_t all = 0;
	for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
		all += zend_hash_func(*variable, strlen(*variable)); /* in any order */
	}
	ZVAL_LONG(&value, (zend_long)(all | 1));
	look_at_part(look, "the environment (putenv())", &value);
	ZVAL_LONG(&value, (zend_long)listed_by("spl_autoload_functions"));
	look_at_part(look, "the list of autoloaders (spl_autoload_register())", &value);
	ZVAL_LONG(&value, FG(stream_wrappers) != NULL ? zend_hash_num_elements(FG(stream_wrappers)) : 0);
	look_at_part(look, "the list of stream wrappers (stream_wrapper_register())", &value);
}

static void look_at_all(struct look *look)
{
	look_at_code(look);
	look_at_names(look);
	look_at_process(look);
}

void own_state_note(void)
{
	if (options_is_project() && !known) {
		known = true;
		zend_hash_init(&before, 64, NULL, NULL, true);
		look_at_all(&(struct look){.is_first = true});
	}
}

/* What one of them has changed for good. */
static char stays[256];

void own_state_put_back(void)
{
	if (known) {
		struct look look = {.is_first = false};
		look_at_all(&look);
		if (stays[0] == '\0') {
			memcpy(stays, look.found, sizeof stays);
		}
	}
}

bool own_state_changed(char *why, size_t size)
{
	if (known) {
		zend_hash_destroy(&before);
		known = false;
	}
	snprintf(
	    why, size,
	    "a warm-up request changed %s, which would hold for all visitors. To avoid it: keep it in a service of the "
	    "container, or set it in the boot",
	    stays);
	return stays[0] != '\0';
}
