/*
 * A project's own front controller as its worker script: php/boot/front_controller.php runs it, and the boot ends where
 * it calls the method that handles a request. HAYATE_RUN names that method, such as Slim\App::run.
 *
 * As its class is compiled, the method gets a first statement, which hands over to the boot script. In a process that
 * has not loaded that (classic mode, php-fpm by a cache of files) the statement does nothing.
 *
 * What runs before that method runs once, for all visitors. So code of the project that looks at the request there has
 * the application served in classic mode: as far as it stands at the top level of a file, it is seen here as the file
 is compiled (OPcache's own files of an earlier server, opcache.file_cache, are not looked into). What else depends on
 * the request shows in the comparison with classic mode (compare.c), for the URLs that it asks for.
 */
#include "explain.h"
#include "host.h"

#include "zend_compile.h"
#include "zend_language_scanner.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The method: its class's name space, without a backslash at its end, the class, and the method itself. */
static char space[128], class[128], method[64];
/* Its directory; NULL: it was not said. */
static const char *project;
/* What runs is the boot: what is compiled is part of it. */
static bool booting;
/* Why the front controller must not run before there is a request; empty: nothing was seen. */
static char doubt[512];

bool front_controller_boots(void)
{
	return method[0] != '\0';
}

const char *front_controller_doubt(void)
{
	booting = false;
	return doubt[0] != '\0' ? doubt : NULL;
}

/* Variables of a request as $_SERVER has them, by how they begin. The others are the environment's. */
static const char *const of_a_request[] = {
    "HTTP",   "REQUEST_",     "REMOTE_", "SERVER_",   "QUERY_STRING", "PATH_INFO", "PATH_TRANSLATED", "PHP_SELF",
    "SCRIPT", "DOCUMENT_URI", "ORIG_",   "REDIRECT_", "CONTENT_",     "PHP_AUTH",  "AUTH_TYPE",
};
static const char *const superglobals[] = {"_GET", "_POST", "_COOKIE", "_REQUEST", "_FILES", "_SESSION"};
/* What draws or reads the clock is doubted as well (frozen_draws()): drawn once, a nonce would be one for all visitors.
 */
static const char *const functions[] = {
    "session_start",
    "session_name",
    "session_id",
    "session_create_id",
    "session_regenerate_id",
    "session_set_cookie_params",
    "header",
    "header_remove",
    "header_register_callback",
    "headers_list",
    "headers_sent",
    "setcookie",
    "setrawcookie",
    "flush",
    "http_response_code",
    "filter_input",
    "filter_input_array",
    "getallheaders",
    "apache_request_headers",
    "hayate_early_hints",
};
/* The same, by how they begin: of the output there is one for each visitor. */
static bool is_of_output(const char *function)
{
	return strncasecmp(function, "ob_", 3) == 0 || strncasecmp(function, "output_", 7) == 0;
}
/* Methods that make a request of the superglobals, read the clock or draw, by the names that libraries share for them.
 */
static const char *const methods[] = {
    "fromGlobals",
    "createFromGlobals",
    "createServerRequestFromGlobals",
    "capture",
    "now",
    "today",
    "tomorrow",
    "yesterday",
    "uuid1",
    "uuid4",
    "uuid6",
    "uuid7",
    "orderedUuid",
    "randomBytes",
};
/* Static methods whose names say less, by the last part of the class's name. */
static const struct {
	const char *class, *method;
} static_methods[] = {
    {"Uuid", "v1"},  {"Uuid", "v4"},    {"Uuid", "v6"},  {"Uuid", "v7"},
    {"Str", "uuid"}, {"Str", "random"}, {"Str", "ulid"}, {"Ulid", "generate"},
};
/* Classes of libraries whose objects hold the time or a random number from the beginning. */
static const char *const classes[] = {"Carbon", "CarbonImmutable", "Ulid", "UuidV1", "UuidV4", "UuidV6", "UuidV7"};

static bool is_one_of(const char *const *list, size_t count, const char *name, bool beginning)
{
	for (size_t i = 0; i < count; i++) {
		if (beginning ? strncmp(name, list[i], strlen(list[i])) == 0 : strcasecmp(name, list[i]) == 0) {
			return true;
		}
	}
	return false;
}
#define IS_ONE_OF(list, name, beginning) is_one_of(list, sizeof list / sizeof list[0], name, beginning)

/* A name without its name space: what `use` says of it is not looked into. */
static const char *last_part(const char *name)
{
	const char *last = strrchr(name, '\\');
	return last != NULL ? last + 1 : name;
}

static bool draws_by_static_method(const char *class_name, const char *called)
{
	for (size_t i = 0; i < sizeof static_methods / sizeof static_methods[0]; i++) {
		if (strcasecmp(last_part(class_name), static_methods[i].class) == 0 &&
		    strcasecmp(called, static_methods[i].method) == 0) {
			return true;
		}
	}
	return false;
}

/* A string that stands there as such; NULL: something else. */
static const char *literal(zend_ast *ast)
{
	bool is_string = ast != NULL && ast->kind == ZEND_AST_ZVAL && Z_TYPE_P(zend_ast_get_zval(ast)) == IS_STRING;
	return is_string ? Z_STRVAL_P(zend_ast_get_zval(ast)) : NULL;
}

static void note_doubt(const char *sign, const char *what, zend_ast *at)
{
	if (doubt[0] == '\0') {
		snprintf(doubt, sizeof doubt,
		         "%s:%" PRIu32 " looks at the request, draws or reads the clock (%s%s) before %s\\%s::%s() handles it, "
		         "and would do so once for all "
		         "visitors",
		         ZSTR_VAL(zend_get_compiled_filename()), zend_ast_get_lineno(at), sign, what, space, class, method);
	}
}

static void look_for_requests(zend_ast *ast);

/* What PHP itself calls this way to run: PHP_SAPI or php_sapi_name(). */
static bool is_sapi(zend_ast *ast)
{
	if (ast->kind != ZEND_AST_CONST && ast->kind != ZEND_AST_CALL) {
		return false;
	}
	const char *name = literal(ast->child[0]);
	return name != NULL && (ast->kind == ZEND_AST_CONST ? strcmp(last_part(name), "PHP_SAPI") == 0
	                                                    : strcasecmp(last_part(name), "php_sapi_name") == 0);
}

/* Whether this is never true here: that PHP runs in a console or as its own web server, and what else must be true. */
static bool is_of_console(zend_ast *condition)
{
	if (condition == NULL) {
		return false;
	}
	if (condition->kind == ZEND_AST_AND) {
		return is_of_console(condition->child[0]);
	}
	if (condition->kind != ZEND_AST_BINARY_OP ||
	    (condition->attr != ZEND_IS_IDENTICAL && condition->attr != ZEND_IS_EQUAL)) {
		return false;
	}
	const char *left = literal(condition->child[0]), *right = literal(condition->child[1]);
	zend_ast *other = condition->child[left != NULL ? 1 : 0];
	const char *sapi = left != NULL ? left : right;
	return sapi != NULL && (strcmp(sapi, "cli-server") == 0 || strcmp(sapi, "cli") == 0) && is_sapi(other);
}

static bool is_exit(zend_ast *statement)
{
#if PHP_VERSION_ID < 80400
	return statement != NULL && statement->kind == ZEND_AST_EXIT;
#else
	const char *called = statement != NULL && statement->kind == ZEND_AST_CALL ? literal(statement->child[0]) : NULL;
	return called != NULL && (strcasecmp(called, "exit") == 0 || strcasecmp(called, "die") == 0);
#endif
}

/* Whether what follows such a statement runs; what `echo` prints is a list of statements of its own. */
static bool goes_on(zend_ast *statement)
{
	if (statement != NULL && statement->kind == ZEND_AST_STMT_LIST) {
		zend_ast_list *list = zend_ast_get_list(statement);
		for (uint32_t i = 0; i < list->children; i++) {
			if (!goes_on(list->child[i])) {
				return false;
			}
		}
		return true;
	}
	return statement == NULL || statement->kind == ZEND_AST_ASSIGN || statement->kind == ZEND_AST_CALL ||
	       statement->kind == ZEND_AST_ECHO;
}

/* Whether a block ends with exit and does not leave before: where it runs, no request is ever handled. */
static bool ends_with_exit(zend_ast *block)
{
	if (is_exit(block)) {
		return true;
	}
	zend_ast_list *list = block != NULL && block->kind == ZEND_AST_STMT_LIST ? zend_ast_get_list(block) : NULL;
	uint32_t count = list == NULL ? 0 : list->children;
	for (uint32_t i = 0; i + 1 < count; i++) {
		if (!goes_on(list->child[i])) {
			return false;
		}
	}
	return count > 0 && is_exit(list->child[count - 1]);
}

/* Functions whose answers stay the same for as long as this PHP. */
static const char *const settled[] = {"version_compare", "phpversion", "php_sapi_name"};
/* The same where they say no, and the process ends then: without what is missing nothing is ever served. What is there
 * may be gone later: by a file sites are closed for a while. */
static const char *const missing[] = {
    "extension_loaded", "function_exists", "class_exists", "interface_exists", "defined",
    "file_exists",      "is_file",         "is_dir",       "is_readable",      "is_writable",
};

/* Whether a condition is the same for all requests, so that it may be asked once. Not so is what calls the project's
 * own functions, which may ask for an address, and what stands in a variable. */
static bool is_settled(zend_ast *condition, bool negated)
{
	if (condition == NULL) {
		return false;
	}
	switch (condition->kind) {
	case ZEND_AST_ZVAL:
		return true;
	case ZEND_AST_AND:
	case ZEND_AST_OR:
		return is_settled(condition->child[0], negated) && is_settled(condition->child[1], negated);
	case ZEND_AST_BINARY_OP:
	case ZEND_AST_GREATER:
	case ZEND_AST_GREATER_EQUAL:
		return is_settled(condition->child[0], false) && is_settled(condition->child[1], false);
	case ZEND_AST_UNARY_OP:
		return condition->attr == ZEND_BOOL_NOT && is_settled(condition->child[0], !negated);
	case ZEND_AST_CONST: {
		const char *name = literal(condition->child[0]);
		return name != NULL && strncmp(last_part(name), "PHP_", 4) == 0;
	}
	case ZEND_AST_CALL: {
		const char *name = literal(condition->child[0]);
		if (name == NULL) {
			return false;
		}
		return IS_ONE_OF(settled, last_part(name), false) || (negated && IS_ONE_OF(missing, last_part(name), false));
	}
	default:
		return false;
	}
}

/* Within a block that runs when something has been thrown: the boot has failed then. */
static bool catches;
/* In a list of statements that are run in any case. */
static bool unconditional;

/* A function without a name that is called where it stands, or that the file returns, for its includer to call. */
static void look_into_function(zend_ast *ast)
{
	if (ast != NULL && (ast->kind == ZEND_AST_CLOSURE || ast->kind == ZEND_AST_ARROW_FUNC)) {
		look_for_requests(((zend_ast_decl *)ast)->child[2]);
	}
}

/* Code that runs as the file is included; bodies of other functions and of classes do not. */
static void look_for_requests(zend_ast *ast)
{
	if (ast == NULL) {
		return;
	}
	const char *text = literal(ast);
	if (text != NULL && strcasecmp(text, "php://input") == 0) {
		note_doubt("", text, ast);
	}
	if (zend_ast_is_special(ast)) {
		return;
	}
	if (ast->kind == ZEND_AST_IF_ELEM && is_of_console(ast->child[0])) {
		return;
	}
	bool alternative = ast->kind == ZEND_AST_AND || ast->kind == ZEND_AST_OR;
	bool exits = ast->kind == ZEND_AST_IF_ELEM ? ends_with_exit(ast->child[1]) : alternative && is_exit(ast->child[1]);
	if (exits && is_settled(ast->child[0], ast->kind == ZEND_AST_OR)) {
		look_for_requests(ast->child[0]);
		return;
	}
	if (is_exit(ast) && !unconditional && !catches) {
		/* It may turn away some visitors by their address, or all for a while. */
		note_doubt("", "exit, where something is so that may be otherwise later", ast);
	}
	if (ast->kind == ZEND_AST_CATCH) {
		bool within = catches;
		catches = true;
		look_for_requests(ast->child[2]);
		catches = within;
		return;
	}
	if (ast->kind == ZEND_AST_CALL || ast->kind == ZEND_AST_RETURN) {
		look_into_function(ast->child[0]);
	}
	if (ast->kind == ZEND_AST_STATIC_CALL || ast->kind == ZEND_AST_METHOD_CALL ||
	    ast->kind == ZEND_AST_NULLSAFE_METHOD_CALL) {
		const char *called = literal(ast->child[1]);
		const char *of = ast->kind == ZEND_AST_STATIC_CALL ? literal(ast->child[0]) : NULL;
		if (called != NULL &&
		    (IS_ONE_OF(methods, called, false) || (of != NULL && draws_by_static_method(of, called)))) {
			note_doubt("", called, ast);
		}
	}
	if (ast->kind == ZEND_AST_NEW) {
		const char *class_name = literal(ast->child[0]);
		if (class_name != NULL &&
		    (IS_ONE_OF(classes, last_part(class_name), false) || frozen_draws_class(last_part(class_name)))) {
			note_doubt("new ", class_name, ast);
		}
	}
	const char *name = ast->kind == ZEND_AST_VAR || ast->kind == ZEND_AST_CALL ? literal(ast->child[0]) : NULL;
	if (ast->kind == ZEND_AST_DIM && ast->child[0]->kind == ZEND_AST_VAR) {
		const char *variable = literal(ast->child[0]->child[0]), *key = literal(ast->child[1]);
		if (variable != NULL && key != NULL && strcmp(variable, "_SERVER") == 0) {
			if (IS_ONE_OF(of_a_request, key, true)) {
				note_doubt("$_SERVER ", key, ast);
			}
			return; /* a variable of the environment, then */
		}
		if (variable != NULL && key != NULL && strcmp(variable, "GLOBALS") == 0 &&
		    (IS_ONE_OF(superglobals, key, false) || strcmp(key, "_SERVER") == 0)) {
			note_doubt("$", key, ast);
		}
	}
	if (ast->kind == ZEND_AST_VAR && name != NULL &&
	    (IS_ONE_OF(superglobals, name, false) || strcmp(name, "_SERVER") == 0)) {
		note_doubt("$", name, ast);
	}
	const char *function = ast->kind == ZEND_AST_CALL && name != NULL ? last_part(name) : NULL;
	if (function != NULL &&
	    (IS_ONE_OF(functions, function, false) || is_of_output(function) || frozen_draws(function))) {
		note_doubt("", function, ast);
	}
	if (function != NULL && strcasecmp(function, "getenv") == 0) {
		zend_ast_list *arguments = zend_ast_get_list(ast->child[1]);
		const char *variable = arguments->children > 0 ? literal(arguments->child[0]) : NULL;
		if (variable != NULL && IS_ONE_OF(of_a_request, variable, true)) {
			note_doubt("getenv ", variable, ast);
		}
	}
	uint32_t count = zend_ast_is_list(ast) ? zend_ast_get_list(ast)->children : zend_ast_get_num_children(ast);
	zend_ast **child = zend_ast_is_list(ast) ? zend_ast_get_list(ast)->child : ast->child;
	bool before = unconditional;
	unconditional = before && (ast->kind == ZEND_AST_STMT_LIST || ast->kind == ZEND_AST_NAMESPACE);
	for (uint32_t i = 0; i < count; i++) {
		look_for_requests(child[i]);
	}
	unconditional = before;
}

/* What Composer brought is written for any project, and looks at requests when it is asked to. */
static bool is_the_projects_own(void)
{
	const char *file = ZSTR_VAL(zend_get_compiled_filename());
	size_t len = project == NULL ? 0 : strlen(project);
	bool within = len > 0 && strncmp(file, project, len) == 0 && file[len] == '/';
	return within && strncmp(file + len, "/vendor/", strlen("/vendor/")) != 0;
}

/* The statement, as a tree of its own; NULL: there is no memory for it. The arena it stands in is left to it. */
static zend_ast *first_statement(void)
{
	char code[512];
	snprintf(code, sizeof code,
	         "<?php if (\\function_exists('Hayate\\Boot\\requests_begin') && "
	         "\\Hayate\\Boot\\requests_begin($this, __CLASS__, '%s', \\func_get_args())) { exit; }",
	         method);
	zend_string *text = zend_string_init(code, strlen(code), false);
	zend_arena *arena;
	zend_ast *ast = zend_compile_string_to_ast(text, &arena, zend_get_compiled_filename());
	zend_string_release(text);
	return ast;
}

static void change_method(zend_ast *of_class)
{
	zend_ast_list *members = zend_ast_get_list(((zend_ast_decl *)of_class)->child[2]);
	for (uint32_t i = 0; i < members->children; i++) {
		zend_ast_decl *member = (zend_ast_decl *)members->child[i];
		if (member == NULL || member->kind != ZEND_AST_METHOD || member->child[2] == NULL ||
		    (member->flags & ZEND_ACC_STATIC) != 0 || strcasecmp(ZSTR_VAL(member->name), method) != 0) {
			continue;
		}
		zend_ast *first = first_statement();
		if (first != NULL) {
			member->child[2] = zend_ast_create_list(2, ZEND_AST_STMT_LIST, first, member->child[2]);
		}
	}
}

/* The class, in a list of statements of which `within` says whether they are in its name space. */
static void look_for_class(zend_ast *statements, bool within)
{
	zend_ast_list *list = zend_ast_get_list(statements);
	for (uint32_t i = 0; i < list->children; i++) {
		zend_ast *one = list->child[i];
		if (one == NULL) {
			continue;
		}
		if (one->kind == ZEND_AST_NAMESPACE) {
			const char *name = literal(one->child[0]);
			within = name != NULL && strcasecmp(name, space) == 0;
			if (one->child[1] != NULL) {
				look_for_class(one->child[1], within);
			}
		} else if (one->kind == ZEND_AST_CLASS && within && ((zend_ast_decl *)one)->name != NULL &&
		           strcasecmp(ZSTR_VAL(((zend_ast_decl *)one)->name), class) == 0) {
			change_method(one);
		}
	}
}

/* Who looked at what is compiled before this: an extension. */
static zend_ast_process_t others;

static void look_through(zend_ast *ast)
{
	if (others != NULL) {
		others(ast);
	}
	if (ast->kind != ZEND_AST_STMT_LIST) {
		return;
	}
	look_for_class(ast, false);
	if (booting && is_the_projects_own()) {
		catches = false;
		unconditional = true;
		look_for_requests(ast);
	}
}

void front_controller_startup(void)
{
	const char *name = options_env("HAYATE_RUN");
	project = options_env("HAYATE_PROJECT");
	if (name == NULL || !options.worker_mode) {
		return;
	}
	if (sscanf(name, "%127[A-Za-z0-9_\\]::%63[A-Za-z0-9_]", class, method) != 2) {
		zygote_failed("HAYATE_RUN must be a class with its name space and a method, such as Slim\\App::run");
	}
	char *last = strrchr(class, '\\');
	if (last != NULL) {
		memcpy(space, class, (size_t)(last - class));
		memmove(class, last + 1, strlen(last));
	}
	booting = true;
	others = zend_ast_process;
	zend_ast_process = look_through;
}
