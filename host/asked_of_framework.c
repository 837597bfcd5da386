/*
 * What a framework was asked of a request before there is one, for the boot scripts (php/boot/), which know their
 * framework: whether a function of its has run, which of a request's variables the environment was asked for, and that
 * the application is not to be served from this boot. What the project's own code asks PHP itself, asked_once.c sees.
 */
#include "host.h"
#include "settled.h"
#include "syntax.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A variable of a request that code asked for, by getenv() or a function env() of a framework's, which comes to it. */
struct asked {
	char *name, *file;
	uint32_t line;
};
static struct asked asked[64];
static size_t asked_count;
/* Why the boot must not go by what it was told; empty: nothing is known. */
static char doubt[512];

/* Whether this runs before there is a request. */
static bool boots(void)
{
	return options_is_project() && !handle_reached();
}

static void note_doubt(const char *why)
{
	if (doubt[0] == '\0') {
		snprintf(doubt, sizeof doubt, "%s", why);
	}
}

static bool is_env(const zend_function *function)
{
	const zend_string *name = function->common.function_name;
	return function->common.scope == NULL && name != NULL && strcasecmp(name_last_part(ZSTR_VAL(name)), "env") == 0;
}

/* Libraries by which code asks for a variable: their own code is not what asks. */
static bool is_asked_by(const zend_function *function)
{
	static const char *const readers[] = {"Dotenv\\", "PhpOption\\", "Illuminate\\Support\\Env"};
	const zend_class_entry *of = function->common.scope;
	for (size_t i = 0; of != NULL && i < sizeof readers / sizeof readers[0]; i++) {
		if (strncmp(ZSTR_VAL(of->name), readers[i], strlen(readers[i])) == 0) {
			return true;
		}
	}
	return is_env(function);
}

/* Dotenv looks whether a variable is there before it writes it. */
static bool is_written_by(const zend_function *function)
{
	const zend_class_entry *of = function->common.scope;
	return of != NULL && strcmp(ZSTR_VAL(of->name), "Dotenv\\Repository\\Adapter\\ImmutableWriter") == 0;
}

/* What begins like a variable of a request and is none: libraries that speak HTTP look for it as they are made, our
 * boot scripts for the last one. */
static const char *const of_all[] = {"HTTP_PROXY", "HTTPS_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "HAYATE_PROJECT"};

void asked_of_environment(const char *name)
{
	if (!boots() || !settled_is_of_request(name) || IS_ONE_OF(of_all, name, false)) {
		return;
	}
	const zend_execute_data *frame = EG(current_execute_data);
	while (frame != NULL && (frame->func == NULL || !ZEND_USER_CODE(frame->func->type) || is_asked_by(frame->func))) {
		if (frame->func != NULL && is_written_by(frame->func)) {
			return;
		}
		frame = frame->prev_execute_data;
	}
	if (frame == NULL || frame->opline == NULL) {
		return;
	}
	const char *file = ZSTR_VAL(frame->func->op_array.filename);
	uint32_t line = frame->opline->lineno;
	for (size_t i = 0; i < asked_count; i++) {
		if (asked[i].line == line && strcmp(asked[i].name, name) == 0 && strcmp(asked[i].file, file) == 0) {
			return;
		}
	}
	if (asked_count == sizeof asked / sizeof asked[0]) {
		note_doubt("what runs before there is a request asks the environment for a request's variables in more than 64 "
		           "places. "
		           "To avoid it: ask for them in a middleware");
		return;
	}
	asked[asked_count++] = (struct asked){
	    .name = pestrdup(name, true),
	    .file = pestrdup(file, true),
	    .line = line,
	};
}

const char *asked_of_framework(void)
{
	for (size_t i = 0; i < asked_count; i++) {
		free(asked[i].name);
		free(asked[i].file);
	}
	asked_count = 0;
	return doubt[0] != '\0' ? doubt : NULL;
}

const char *asked_of_framework_in_vain(void)
{
	if (doubt[0] == '\0' && asked_count > 0) {
		snprintf(doubt, sizeof doubt,
		         "%.300s:%" PRIu32
		         " asks the environment for %.60s, which a request has. To avoid it: do it in a middleware",
		         asked[0].file, asked[0].line, asked[0].name);
	}
	return asked_of_framework();
}

/* was_called(string $function): bool: whether a function, or a method (Class::method), of PHP code has run. */
static PHP_FUNCTION(was_called)
{
	zend_string *name;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_STR(name)
	ZEND_PARSE_PARAMETERS_END();

	HashTable *functions = EG(function_table);
	const char *function = ZSTR_VAL(name), *colons = strstr(function, "::");
	if (colons != NULL) {
		zend_string *class = zend_string_init(function, (size_t)(colons - function), false);
		zend_class_entry *of = zend_lookup_class_ex(class, NULL, ZEND_FETCH_CLASS_NO_AUTOLOAD);
		zend_string_release(class);
		if (of == NULL) {
			RETURN_FALSE;
		}
		functions = &of->function_table;
		function = colons + 2;
	}
	zend_string *lower = zend_string_init(function, strlen(function), false);
	zend_str_tolower(ZSTR_VAL(lower), ZSTR_LEN(lower));
	const zend_function *found = zend_hash_find_ptr(functions, lower);
	zend_string_release(lower);
	/* It is made when a function is called for the first time. */
	RETURN_BOOL(found != NULL && found->type == ZEND_USER_FUNCTION && RUN_TIME_CACHE(&found->op_array) != NULL);
}

/* environment_asked(): list<array{string, string, int}>: variables of a request, and by which file and line. */
static PHP_FUNCTION(environment_asked)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	for (size_t i = 0; i < asked_count; i++) {
		zval one;
		array_init_size(&one, 3);
		add_next_index_string(&one, asked[i].name);
		add_next_index_string(&one, asked[i].file);
		add_next_index_long(&one, asked[i].line);
		add_next_index_zval(return_value, &one);
	}
}

/* is_of_request(string $name): bool: whether a variable of $_SERVER or getenv() is a request's, by its name. */
static PHP_FUNCTION(is_of_request)
{
	zend_string *name;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_STR(name)
	ZEND_PARSE_PARAMETERS_END();
	RETURN_BOOL(settled_is_of_request(ZSTR_VAL(name)));
}

/* not_for_all(string $why): void: the boot found something that is not the same for all requests. */
static PHP_FUNCTION(not_for_all)
{
	zend_string *why;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_STR(why)
	ZEND_PARSE_PARAMETERS_END();

	if (!handle_reached()) {
		note_doubt(ZSTR_VAL(why));
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_was_called, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, function, IS_STRING, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_is_of_request, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_environment_asked, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_not_for_all, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, why, IS_STRING, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry of_boot_scripts[] = {
    ZEND_NS_FE("Hayate\\Boot", was_called, arginfo_was_called)
        ZEND_NS_FE("Hayate\\Boot", is_of_request, arginfo_is_of_request)
            ZEND_NS_FE("Hayate\\Boot", environment_asked, arginfo_environment_asked)
                ZEND_NS_FE("Hayate\\Boot", not_for_all, arginfo_not_for_all) ZEND_FE_END};

void asked_of_framework_startup(void)
{
	/* Others have nothing to see of them. */
	if (options_is_project()) {
		functions_of_boot_scripts(of_boot_scripts);
	}
}
