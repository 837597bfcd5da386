/*
 * What a project's own code asks for in a boot that we run (php/boot/), before there is a request. It runs once, and
 * what it found holds for all visitors. So an application is served in classic mode where its code
 *
 * - looks at the request;
 * - calls exit, or abort() of Laravel, only where something is so that may be otherwise later: a file that is there
 * while the site is closed, an address that is blocked;
 *
 * and where its own front controller is run (front_controller.c; of symfony/runtime's it is the last of these, in that
 * file alone), also where that, or a file that it includes,
 *
 * - draws or reads the clock;
 * - answers, throws, includes a file for what it does, or comes to the request, only where something is so.
 *
 * It is seen in the syntax tree of each file, as PHP compiles it. The top level of a file counts as run; a function
 * with a name counts where it was called before the boot's end, which its run-time cache tells. One without a name that
 * would be a reason is given a first statement by which it says that it runs: containers, routers and event
 * dispatchers call it, or keep it for a request. Where in that code the boot stands when the request is to be handled,
 * the stack tells.
 *
 * It goes by names, and a condition is doubted unless it is known to be the same for all requests (settled.h). What is
 * not seen here shows in the comparison with classic mode (compare.c), where there is one. What opcache.preload has
 * compiled before the boot is not looked into.
 */
#include "asked.h"
#include "explain.h"
#include "host.h"
#include "settled.h"
#include "words.h"

#include "php_ini.h"
#include "zend_compile.h"
#include "zend_language_scanner.h"
#include "zend_observer.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what was seen ---- */

/* At the top level of a file: why the boot must not go by it; empty: nothing was seen. */
static char seen[LONGEST_REASON];

/* Functions of the project's own that would be a reason if they were called before the request: why, by name_of(). */
static HashTable of_functions;
/* The same of functions without a name, by their numbers. */
static char **of_closures;
static size_t closures_count;
/* Lines that run only where something is so that may be otherwise later. */
struct lines {
	const char *file;
	uint32_t first, last;
};
static struct lines *of_lines;
static size_t lines_count;
/* Their files. */
static char **files;
static size_t files_count;
/* The one that is looked into: its name, all of it, and the variables that are called in it, as $f(). */
static const char *file;
static zend_ast *whole;
static HashTable called_variables;
static bool called_variables_known;

/* A list with room for one more of `size` bytes; it grows where their number is a power of two. */
static void *one_more(void *list, size_t *count, size_t size)
{
	if ((*count & (*count - 1)) == 0) {
		list = perealloc(list, size * (*count == 0 ? 1 : *count * 2), true);
	}
	++*count;
	return list;
}

static void forget_why(zval *why)
{
	free(Z_PTR_P(why));
}

static void forget_all(void)
{
	for (size_t i = 0; i < files_count; i++) {
		free(files[i]);
	}
	for (size_t i = 0; i < closures_count; i++) {
		free(of_closures[i]);
	}
	free(files);
	free(of_closures);
	free(of_lines);
	files = of_closures = NULL;
	of_lines = NULL;
	files_count = closures_count = lines_count = 0;
	zend_hash_destroy(&of_functions);
}

/* A function, by where it stands; no two have the same. A trait's has no name: classes may have it by another. */
static size_t name_of(char *to, size_t size, const char *in, uint32_t line, const char *name)
{
	int len = snprintf(to, size, "%" PRIu32 " %s %s", line, name, in);
	return len < 0 ? 0 : (size_t)len < size ? (size_t)len : size - 1;
}

/* These trees, of one list, run only sometimes. */
static void note_lines(zend_ast **trees, uint32_t count)
{
	uint32_t first = UINT32_MAX, last = 0;
	for (uint32_t i = 0; i < count; i++) {
		ast_span(trees[i], &first, &last);
	}
	if (first <= last) {
		of_lines = one_more(of_lines, &lines_count, sizeof of_lines[0]);
		of_lines[lines_count - 1] = (struct lines){.file = file, .first = first, .last = last};
	}
}

/* Where code stands. */
struct place {
	zend_ast_decl *function; /* which runs when it is called; NULL: the top level of the file */
	bool of_trait;
	bool sometimes; /* it runs only where something is so that may be otherwise later */
	char **closure; /* of a function without a name: why it would be a reason, or NULL */
};

enum what { ASKS, DRAWS, ANSWERS };
static const char *const said[] = {
    [ASKS] = LOOKS,
    [DRAWS] = "draws or reads the clock",
    [ANSWERS] = "answers, or turns somebody away, where something is so that may be otherwise later",
};

/* The project's front controller, where a boot script of ours includes it whole, as symfony/runtime does; and whether
 * that is looked into. */
static char front_controller[PATH_MAX];

static bool in_front_controller(void)
{
	return strcmp(file, front_controller) == 0;
}

static void note(enum what what, const char *sign, const char *name, zend_ast *at, struct place place)
{
	if ((place.function == NULL && seen[0] != '\0') || (place.closure != NULL && *place.closure != NULL)) {
		return;
	}
	bool leaves = what == ANSWERS && (strcmp(name, "exit") == 0 || word_aborts(name));
	bool decides = front_controller_boots() || (what == ANSWERS && in_front_controller());
	if (what != ASKS && !leaves && (place.function != NULL || !decides)) {
		/* What a function draws is told by the log (frozen_tell()), and what it prints or throws is its own
		 * affair. Configuration that is read once may say the year, and include what is there. */
		return;
	}
	char why[sizeof seen];
	snprintf(why, sizeof why, "%s:%" PRIu32 " %s (%s%s) " ONCE, file, zend_ast_get_lineno(at), said[what], sign, name);
	if (place.function == NULL) {
		memcpy(seen, why, sizeof seen);
		return;
	}
	if (place.closure != NULL) {
		*place.closure = pestrdup(why, true);
		return;
	}
	char name_of_function[PATH_MAX + 256];
	size_t len = name_of(name_of_function, sizeof name_of_function, file, place.function->start_lineno,
	                     place.of_trait ? "" : ZSTR_VAL(place.function->name));
	if (!zend_hash_str_exists(&of_functions, name_of_function, len)) {
		zend_hash_str_add_ptr(&of_functions, name_of_function, len, pestrdup(why, true));
	}
}

/* ---- what runs ---- */

static void look(zend_ast *ast, struct place place);

static void look_at_declared(zend_ast *ast, struct place place)
{
	const zend_ast_decl *function = (zend_ast_decl *)ast;
	zend_ast_list *parameters = function->child[0] != NULL ? zend_ast_get_list(function->child[0]) : NULL;
	for (uint32_t i = 0; parameters != NULL && i < parameters->children; i++) {
		const char *type = ast_literal(parameters->child[i]->child[0]);
		if (type != NULL && word_is_request(type)) {
			note(ASKS, "argument ", type, parameters->child[i], place);
		}
	}
	size_t hidden = settled_variables_hide();
	settled_after(NULL); /* an arrow function has no list of statements */
	look(function->child[2], place);
	settled_variables_restore(hidden);
}

/* A function without a name that runs where it stands: it is called there, or returned for the includer to call. */
static void look_at_called(zend_ast *closure, struct place place)
{
	if (ast_is_closure(closure)) {
		look(((zend_ast_decl *)closure)->child[2], place);
	}
}

/* Whether OPcache writes code to files, for processes in which functions of ours are not known: they would crash. */
static bool others_get_code(void)
{
	const char *directory = INI_STR("opcache.file_cache");
	return directory != NULL && directory[0] != '\0';
}

/* Has a function say that it runs, first thing. */
static void number(zend_ast_decl *function, size_t n)
{
	zval value;
	ZVAL_LONG(&value, (zend_long)n);
	zend_ast *call = ast_saying("Hayate\\Boot\\ran", &value, function->start_lineno);
	/* What an arrow function has is a value: ran() ?? value, which says nothing. */
	bool is_value = function->kind == ZEND_AST_ARROW_FUNC && function->child[2]->kind != ZEND_AST_RETURN;
	function->child[2] = is_value ? zend_ast_create(ZEND_AST_COALESCE, call, function->child[2])
	                              : zend_ast_create_list(2, ZEND_AST_STMT_LIST, call, function->child[2]);
}

/* One that hears of errors, of which a boot may have some: what it looks at then is for its message. */
static const zend_ast *of_errors;

/* Who calls it is not known. */
static void look_at_closure(zend_ast *ast)
{
	zend_ast_decl *function = (zend_ast_decl *)ast;
	char *why = NULL;
	look_at_declared(ast, (struct place){.function = function, .closure = &why});
	if (ast == of_errors) {
		free(why);
	} else if (why != NULL && ast->kind == ZEND_AST_ARROW_FUNC && (function->flags & ZEND_ACC_RETURN_REFERENCE) != 0) {
		/* It cannot say that it runs: with that its value would be no variable any more. */
		if (seen[0] == '\0') {
			snprintf(seen, sizeof seen, "%s", why);
		}
		free(why);
	} else if (why != NULL) {
		of_closures = one_more(of_closures, &closures_count, sizeof of_closures[0]);
		of_closures[closures_count - 1] = why;
		number(function, closures_count - 1);
	}
}

static void look_at_declaration(zend_ast *ast)
{
	switch (ast->kind) {
	case ZEND_AST_CLASS: {
		zend_ast_list *members = zend_ast_get_list(((zend_ast_decl *)ast)->child[2]);
		for (uint32_t i = 0; i < members->children; i++) {
			zend_ast *member = members->child[i];
			if (member != NULL && member->kind == ZEND_AST_METHOD) {
				bool of_trait = (((zend_ast_decl *)ast)->flags & ZEND_ACC_TRAIT) != 0;
				look_at_declared(member, (struct place){.function = (zend_ast_decl *)member, .of_trait = of_trait});
			}
		}
		break;
	}
	case ZEND_AST_FUNC_DECL:
		look_at_declared(ast, (struct place){.function = (zend_ast_decl *)ast});
		break;
	case ZEND_AST_CLOSURE:
	case ZEND_AST_ARROW_FUNC:
		look_at_closure(ast);
		break;
	default:
		break;
	}
}

static void find_called(zend_ast *ast)
{
	if (ast_is_leaf(ast)) {
		return;
	}
	if (ast->kind == ZEND_AST_CALL && ast->child[0]->kind == ZEND_AST_VAR) {
		const char *name = ast_literal(ast->child[0]->child[0]);
		if (name != NULL) {
			zend_hash_str_add_empty_element(&called_variables, name, strlen(name));
		}
	}
	uint32_t count;
	zend_ast **child = ast_children(ast, &count);
	for (uint32_t i = 0; i < count; i++) {
		find_called(child[i]);
	}
}

/* Whether a variable is called in code of the file that runs, as $f(). */
static bool is_called(const char *variable)
{
	if (!called_variables_known) {
		called_variables_known = true;
		find_called(whole);
	}
	return zend_hash_str_exists(&called_variables, variable, strlen(variable));
}

static void look_at_assignment(zend_ast *ast, struct place place)
{
	const char *name = ast->child[0]->kind == ZEND_AST_VAR ? ast_literal(ast->child[0]->child[0]) : NULL;
	if (name == NULL) {
		return;
	}
	settled_variable(name, ast->kind == ZEND_AST_ASSIGN && !place.sometimes && settled_value(ast->child[1]));
	if (ast_is_closure(ast->child[1]) && place.function == NULL && is_called(name)) {
		look_at_called(ast->child[1], place);
	}
}

static void look_at_definition(zend_ast_list *arguments)
{
	const char *name = arguments != NULL && arguments->children > 1 ? ast_literal(arguments->child[0]) : NULL;
	if (name != NULL && settled_value(arguments->child[1])) {
		settled_constant(name_last_part(name));
	}
}

/* $router->get('request', 'Shop::request'): a route of that name, and its handler. */
static bool is_route(const char *called, zend_ast_list *arguments)
{
	zend_ast *handler = strcasecmp(called, "get") == 0 && arguments->children > 1 ? arguments->child[1] : NULL;
	return handler != NULL && (ast_is_closure(handler) || handler->kind == ZEND_AST_ARRAY ||
	                           handler->kind == ZEND_AST_CLASS_NAME || ast_literal(handler) != NULL);
}

/* Whether a container is asked for the request: app('request'), $app->get(Request::class). */
static bool gives_request(const char *called, zend_ast_list *arguments)
{
	zend_ast *what = arguments != NULL && arguments->children > 0 ? arguments->child[0] : NULL;
	if (what == NULL || !word_gives(called)) {
		return false;
	}
	const char *name = ast_literal(what);
	if (name != NULL) {
		return strcmp(name, "request") == 0 && !is_route(called, arguments);
	}
	const char *class_name = what->kind == ZEND_AST_CLASS_NAME ? ast_literal(what->child[0]) : NULL;
	return class_name != NULL && word_is_request(class_name);
}

/* CakePHP's skeleton asks for the host and the scheme in this file, and does nothing without. That it asks no more is
 * seen by the file's text, before it runs (crates/hayate/src/framework/requests.rs). */
static bool is_known_by_its_text(void)
{
	const char *run = options_env("HAYATE_RUN"), *name = "/config/bootstrap.php";
	size_t len = strlen(file), end = strlen(name);
	return run != NULL && strcmp(run, "Cake\\Http\\Server::run") == 0 && len >= end &&
	       strcmp(file + len - end, name) == 0;
}

static void look_at_call(zend_ast *ast, struct place place)
{
	look_at_called(ast->child[0], place);
	const char *function = ast_called(ast);
	if (function == NULL) {
		return;
	}
	zend_ast_list *arguments = ast_arguments(ast);
	char lower[128];
	snprintf(lower, sizeof lower, "%s", function);
	zend_str_tolower(lower, strlen(lower));
	zend_function *known = zend_hash_str_find_ptr(CG(function_table), lower, strlen(lower));
	bool of_php = known != NULL && known->type == ZEND_INTERNAL_FUNCTION;
	if (word_asks(function) || gives_request(function, arguments)) {
		note(ASKS, "", function, ast, place);
	} else if (frozen_draws(function)) {
		note(DRAWS, "", function, ast, place);
	} else if (place.sometimes && word_prints(function)) {
		note(ANSWERS, "", function, ast, place);
	}
	if (strcmp(lower, "define") == 0) {
		look_at_definition(arguments);
	}
	if (word_of_environment(lower)) {
		if (arguments != NULL && arguments->children == 0) {
			note(ASKS, "environment: ", "all of it", ast, place);
		}
		const char *name = arguments != NULL && arguments->children > 0 ? ast_literal(arguments->child[0]) : NULL;
		if (name != NULL && settled_is_of_request(name) && !is_known_by_its_text()) {
			note(ASKS, "environment: ", name, ast, place);
		}
	}
	bool has_condition = word_aborts(lower) && strcmp(lower, "abort") != 0;
	if (word_aborts(lower) && (place.sometimes || (has_condition && arguments != NULL && arguments->children > 0 &&
	                                               !settled_value(arguments->child[0])))) {
		note(ANSWERS, "", lower, ast, place);
	}
	if (word_hears_errors(lower) && arguments != NULL && arguments->children > 0) {
		of_errors = arguments->child[0];
	}
	for (uint32_t i = 0; of_php && !word_keeps(lower) && arguments != NULL && i < arguments->children; i++) {
		look_at_called(arguments->child[i], place);
	}
}

/* Whether a list of proxies to be trusted names one by the request, whatever the list is made of. */
static bool names_visitor(zend_ast *ast)
{
	const char *text = ast_literal(ast);
	if (text != NULL) {
		return strcasecmp(text, "REMOTE_ADDR") == 0;
	}
	if (ast_is_leaf(ast)) {
		return false;
	}
	uint32_t count;
	zend_ast **child = ast_children(ast, &count);
	for (uint32_t i = 0; i < count; i++) {
		if (names_visitor(child[i])) {
			return true;
		}
	}
	return false;
}

static void look_at_method_call(zend_ast *ast, struct place place)
{
	const char *called = ast_literal(ast->child[1]);
	const char *of = ast->kind == ZEND_AST_STATIC_CALL ? ast_literal(ast->child[0]) : NULL;
	/* By __set_state() var_export() writes an object, such as configuration that is kept. */
	if (called == NULL || strcasecmp(called, "__set_state") == 0) {
		return;
	}
	bool of_request = of != NULL && word_asks_class(of, called);
	if (word_asks_method(called) || of_request || gives_request(called, ast_arguments(ast))) {
		char sign[256];
		snprintf(sign, sizeof sign, "%s%s", of_request ? of : "", of_request ? "::" : "");
		note(ASKS, sign, called, ast, place);
	}
	if (strcasecmp(called, "setTrustedProxies") == 0 && names_visitor((zend_ast *)ast_arguments(ast))) {
		note(ASKS, "setTrustedProxies ", "REMOTE_ADDR", ast, place);
	}
	if (word_draws_method(of, called)) {
		note(DRAWS, "", called, ast, place);
	}
}

/* $app->request, $this->app->request. */
static void look_at_property(zend_ast *ast, struct place place)
{
	const char *name = ast_literal(ast->child[1]);
	const char *of = ast->child[0]->kind == ZEND_AST_VAR           ? ast_literal(ast->child[0]->child[0])
	                 : ast->child[0]->kind == ZEND_AST_PROP        ? ast_literal(ast->child[0]->child[1])
	                 : ast->child[0]->kind == ZEND_AST_STATIC_PROP ? ast_literal(ast->child[0]->child[1])
	                                                               : NULL;
	if (name != NULL && of != NULL && strcmp(name, "request") == 0 && strcmp(of, "app") == 0) {
		note(ASKS, "$app->", name, ast, place);
	}
}

/* $config['components']['request']: how Yii is to make the request, in its configuration. */
static bool is_configuration(zend_ast *of)
{
	const char *key = of != NULL && of->kind == ZEND_AST_DIM ? ast_literal(of->child[1]) : NULL;
	return key != NULL && strcmp(key, "components") == 0;
}

/* $GLOBALS[$name], which may be a superglobal. */
static bool is_global_by_unknown_name(zend_ast *ast)
{
	if (ast->kind != ZEND_AST_DIM || ast->child[0] == NULL || ast->child[1] == NULL ||
	    ast->child[0]->kind != ZEND_AST_VAR) {
		return false;
	}
	const char *variable = ast_literal(ast->child[0]->child[0]);
	return variable != NULL && strcmp(variable, "GLOBALS") == 0 && ast_literal(ast->child[1]) == NULL;
}

/* Whether a superglobal may have what is of a request. */
static bool is_superglobal(const char *name)
{
	return word_is_superglobal(name) || (strcmp(name, "_ENV") == 0 && settled_environment_is_of_request());
}

/* $_SERVER['KEY'], $_ENV['KEY']. */
bool asked_once_is_request_in(const char *variable, const char *key)
{
	return is_superglobal(variable) && settled_is_of_request(key);
}

/* $_SERVER['KEY'], $GLOBALS['NAME'] and $app['request']. True: all is said of it. */
static bool look_at_element(zend_ast *ast, struct place place)
{
	const char *of_container = ast_literal(ast->child[1]);
	if (of_container != NULL && strcmp(of_container, "request") == 0 && !is_configuration(ast->child[0])) {
		note(ASKS, "", "['request']", ast, place);
	}
	if (ast->child[0] == NULL || ast->child[0]->kind != ZEND_AST_VAR) {
		return false;
	}
	const char *variable = ast_literal(ast->child[0]->child[0]), *key = ast_literal(ast->child[1]);
	/* A closure has no name: "{closure}" before PHP 8.4, NULL since. */
	if (variable != NULL && key == NULL && strcmp(variable, "_SERVER") == 0 && place.function != NULL &&
	    place.closure == NULL && word_of_environment(ZSTR_VAL(place.function->name))) {
		return true; /* what it is asked for stands where it is called */
	}
	if (is_global_by_unknown_name(ast)) {
		note(ASKS, "", "$GLOBALS[…]", ast, place);
	}
	if (variable == NULL || key == NULL) {
		return false;
	}
	if (strcmp(variable, "_SERVER") == 0 || strcmp(variable, "_ENV") == 0) {
		if (asked_once_is_request_in(variable, key)) {
			note(ASKS, variable[1] == 'S' ? "$_SERVER " : "$_ENV ", key, ast, place);
		}
		return true; /* a variable of the environment, then */
	}
	if (strcmp(variable, "GLOBALS") == 0) {
		if (is_superglobal(key) || (strncmp(key, "arg", 3) == 0 && settled_is_of_request(key))) {
			note(ASKS, "$", key, ast, place);
		}
		return true;
	}
	return false;
}

/* Whether what is included is Composer's. */
static bool is_autoloader(zend_ast *include)
{
	zend_ast *path = include->child[0];
	while (path->kind == ZEND_AST_BINARY_OP && path->child[1] != NULL) {
		path = path->child[1];
	}
	const char *end = ast_literal(path), *name = "autoload.php";
	size_t len = end == NULL ? 0 : strlen(end);
	return len >= strlen(name) && strcmp(end + len - strlen(name), name) == 0;
}

/* A file that is included for what it does, where something is so: it may be there later, and answer. */
static void look_at_statement(zend_ast *ast, struct place place)
{
	if (ast != NULL && place.sometimes && ast->kind == ZEND_AST_INCLUDE_OR_EVAL && ast->attr != ZEND_EVAL &&
	    !is_autoloader(ast)) {
		note(ANSWERS, "", "include", ast, place);
	}
}

static void look_at_list(zend_ast *ast, struct place place)
{
	zend_ast_list *list = zend_ast_get_list(ast);
	settled_after(NULL);
	for (uint32_t i = 0; i < list->children; i++) {
		look_at_statement(list->child[i], place);
		look(list->child[i], place);
		settled_after(list->child[i]);
		if (!place.sometimes && settled_may_leave(list->child[i])) {
			note_lines(&list->child[i + 1], list->children - i - 1);
			place.sometimes = true;
		}
	}
	settled_after(NULL);
}

/* Code that runs as the file is included, or as the function is called. */
static void look(zend_ast *ast, struct place place)
{
	const char *text = ast_literal(ast);
	if (text != NULL && strcasecmp(text, "php://input") == 0) {
		note(ASKS, "", text, ast, place);
	}
	if (ast_is_leaf(ast)) {
		if (ast != NULL) {
			look_at_declaration(ast);
		}
		return;
	}
	if (ast->kind == ZEND_AST_IF_ELEM && settled_for_console(ast->child[0])) {
		return;
	}
	if (settled_ends_for_want(ast)) {
		look(ast->child[0], place);
		return;
	}
	if (ast_is_exit(ast) && place.sometimes) {
		note(ANSWERS, "", "exit", ast, place);
	}
	switch (ast->kind) {
	case ZEND_AST_STMT_LIST:
		look_at_list(ast, place);
		return;
	case ZEND_AST_ECHO:
	case ZEND_AST_PRINT:
	case ZEND_AST_THROW:
		if (place.sometimes) {
			note(ANSWERS, "", ast->kind == ZEND_AST_THROW ? "throw" : "echo", ast, place);
		}
		break;
	case ZEND_AST_RETURN:
		if (place.sometimes && !front_controller_boots() && in_front_controller()) {
			/* What it would have returned else is not asked for any more. */
			note(ANSWERS, "", "return", ast, place);
		}
		look_at_called(ast->child[0], place);
		break;
	case ZEND_AST_CALL:
		look_at_call(ast, place);
		break;
	case ZEND_AST_ASSIGN:
	case ZEND_AST_ASSIGN_REF:
	case ZEND_AST_ASSIGN_OP:
	case ZEND_AST_ASSIGN_COALESCE:
		look_at_assignment(ast, place);
		break;
	case ZEND_AST_INCLUDE_OR_EVAL:
		if (!is_autoloader(ast)) {
			settled_variables_forget();
		}
		break;
	case ZEND_AST_METHOD_CALL:
	case ZEND_AST_NULLSAFE_METHOD_CALL:
	case ZEND_AST_STATIC_CALL:
		look_at_method_call(ast, place);
		break;
	case ZEND_AST_NEW: {
		const char *class_name = ast_literal(ast->child[0]);
		if (class_name != NULL && (word_draws_class(class_name) || frozen_draws_class(name_last_part(class_name)))) {
			note(DRAWS, "new ", class_name, ast, place);
		}
		break;
	}
	case ZEND_AST_PROP:
	case ZEND_AST_NULLSAFE_PROP:
		look_at_property(ast, place);
		break;
	case ZEND_AST_DIM:
		if (look_at_element(ast, place)) {
			look(ast->child[1], place);
			return;
		}
		break;
	case ZEND_AST_VAR: {
		const char *name = ast_literal(ast->child[0]);
		if (name != NULL && is_superglobal(name)) {
			note(ASKS, "$", name, ast, place);
		}
		break;
	}
	default:
		break;
	}
	uint32_t count;
	zend_ast **child = ast_children(ast, &count);
	for (uint32_t i = 0; i < count; i++) {
		struct place of_child = place;
		if (!place.sometimes && settled_runs_sometimes(ast, i)) {
			note_lines(&child[i], 1);
			of_child.sometimes = true;
		}
		if (i == 0 && ast->kind == ZEND_AST_ASSIGN && child[i]->kind == ZEND_AST_DIM &&
		    ast_literal(child[i]->child[1]) != NULL && strcmp(ast_literal(child[i]->child[1]), "request") == 0) {
			continue; /* a container is told how the request is made */
		}
		if (i == 0 && ast->kind == ZEND_AST_ASSIGN && is_global_by_unknown_name(child[i])) {
			look(child[i]->child[1], of_child); /* it is written, not asked for */
			continue;
		}
		const char *added_to = i == 0 && ast->kind == ZEND_AST_ASSIGN_OP && child[i]->kind == ZEND_AST_VAR
		                           ? ast_literal(child[i]->child[0])
		                           : NULL;
		if (added_to != NULL && (strcmp(added_to, "_SERVER") == 0 || strcmp(added_to, "_ENV") == 0)) {
			continue; /* $_SERVER += $_ENV: nothing of a request is read or written over */
		}
		if (i == 1 && (ast->kind == ZEND_AST_IF_ELEM || ast->kind == ZEND_AST_AND || ast->kind == ZEND_AST_OR)) {
			look_at_statement(child[i], of_child);
		}
		look(child[i], of_child);
	}
}

/* Until the boot's end. */
static bool booting;

bool asked_once_is_booting(void)
{
	return booting;
}

bool asked_once_looks_into(const zend_string *name)
{
	/* A relative one may be looked for in many places. */
	char resolved[PATH_MAX];
	return booting && (name == NULL || ZSTR_VAL(name)[0] != '/' || realpath(ZSTR_VAL(name), resolved) == NULL ||
	                   owner_is_project(resolved));
}

/* OPcache, where it keeps what it compiles in files: of the project's own code it is to have none (others_get_code())
 * until the boot is over. */
static zend_op_array *(*by_opcache)(zend_file_handle *, int);

static zend_op_array *compile_past_files(zend_file_handle *in, int type)
{
	return asked_once_looks_into(in->filename) ? compile_file(in, type) : by_opcache(in, type);
}

/* Who looked at what is compiled before this: an extension. */
static zend_ast_process_t others;

static void look_into(zend_ast *statements)
{
	if (others != NULL) {
		others(statements);
	}
	const char *name = ZSTR_VAL(zend_get_compiled_filename());
	if (!booting || statements->kind != ZEND_AST_STMT_LIST) {
		return;
	}
	if (owner_is_package(name) && !front_controller_boots() && !others_get_code()) {
		asked_by_packages_look(statements, name);
	}
	if (!owner_is_project(name)) {
		return;
	}
	files = one_more(files, &files_count, sizeof files[0]);
	file = files[files_count - 1] = pestrdup(name, true);
	whole = statements;
	of_errors = NULL;
	called_variables_known = false;
	zend_hash_init(&called_variables, 8, NULL, NULL, true);
	settled_variables_of(whole);
	size_t hidden = settled_variables_hide();
	look(whole, (struct place){0});
	settled_variables_restore(hidden);
	settled_variables_over();
	zend_hash_destroy(&called_variables);
	whole = NULL;
}

/* What of a request the boot missed, as PHP told it, whoever asked. */
static char missed[512];

static void hear_of_error(int type, zend_string *in, uint32_t line, zend_string *message)
{
	static const char undefined[] = "Undefined array key \"";
	const char *text = ZSTR_VAL(message), *name = strstr(text, undefined);
	if (booting && missed[0] == '\0' && name != NULL && settled_is_of_request(name + strlen(undefined))) {
		snprintf(missed, sizeof missed, "%s:%" PRIu32 " misses what a request has (%.200s)",
		         in != NULL ? ZSTR_VAL(in) : "PHP", line, text);
	}
}

/* ran(int $number): void: says that a function without a name runs. */
static PHP_FUNCTION(ran)
{
	zend_long number;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_LONG(number)
	ZEND_PARSE_PARAMETERS_END();
	if (booting && seen[0] == '\0' && number >= 0 && (size_t)number < closures_count) {
		snprintf(seen, sizeof seen, "%s", of_closures[number]);
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_ran, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, number, IS_LONG, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {ZEND_NS_FE("Hayate\\Boot", ran, arginfo_ran) ZEND_FE_END};

/* Settings of a directory or a host hold for its scripts and are read for each request, in classic mode alone. */
static void look_for_directory_settings(void)
{
	const char *name = PG(user_ini_filename);
	char path[PATH_MAX], why[PATH_MAX + 256];
	if (name != NULL && name[0] != '\0' && options.document_root != NULL) {
		snprintf(path, sizeof path, "%s/%s", options.document_root, name);
		if (access(path, F_OK) == 0) {
			snprintf(why, sizeof why,
			         "%s (user_ini.filename) has settings for its scripts, which classic mode alone applies; move them "
			         "to [app.ini], and delete it",
			         path);
			zygote_boot_again(HY_AGAIN_CLASSIC, why);
		}
	}
	if (php_ini_has_per_dir_config() || php_ini_has_per_host_config()) {
		zygote_boot_again(HY_AGAIN_CLASSIC, "php.ini has settings for some directories or hosts ([PATH=…], [HOST=…]), "
		                                    "which classic mode alone applies; move them to [app.ini]");
	}
}

/* What settings of PHP have run before or after each script. */
static void look_for_files_around(const char *around, const char *text)
{
	if (around != NULL && around[0] != '\0') {
		char why[512];
		snprintf(why, sizeof why, text, around);
		zygote_boot_again(HY_AGAIN_CLASSIC, why);
	}
}

void asked_once_startup(void)
{
	if (!options_is_project()) {
		return;
	}
	const char *project = options_env("HAYATE_PROJECT");
	look_for_files_around(PG(auto_prepend_file),
	                      "auto_prepend_file = %s would run " ONCE ", or leave that setting out");
	look_for_files_around(PG(auto_append_file),
	                      "auto_append_file = %s would never run, since the front controller does not "
	                      "come to its end; leave that setting out");
	look_for_directory_settings();
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/public/index.php", project);
	if (realpath(path, front_controller) == NULL) {
		front_controller[0] = '\0';
	}
	zend_hash_init(&of_functions, 8, NULL, forget_why, true);
	functions_of_boot_scripts(functions);
	if (others_get_code()) {
		by_opcache = zend_compile_file;
		zend_compile_file = compile_past_files;
	}
	booting = true;
	zend_observer_error_register(hear_of_error);
	others = zend_ast_process;
	zend_ast_process = look_into;
}

/* ---- what has run ---- */

static const char *of_called(HashTable *table)
{
	zend_function *function;
	ZEND_HASH_FOREACH_PTR(table, function)
	{
		if (function->type != ZEND_USER_FUNCTION || function->common.function_name == NULL ||
		    RUN_TIME_CACHE(&function->op_array) == NULL) {
			continue;
		}
		const zend_op_array *code = &function->op_array;
		const char *names[] = {ZSTR_VAL(code->function_name), ""};
		for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
			char name[PATH_MAX + 256];
			size_t len = name_of(name, sizeof name, ZSTR_VAL(code->filename), code->line_start, names[i]);
			const char *why = zend_hash_str_find_ptr(&of_functions, name, len);
			if (why != NULL) {
				return why;
			}
		}
	}
	ZEND_HASH_FOREACH_END();
	return NULL;
}

static void look_at_functions(void)
{
	if (zend_hash_num_elements(&of_functions) == 0) {
		return;
	}
	const char *found = of_called(EG(function_table));
	zend_class_entry *of;
	ZEND_HASH_FOREACH_PTR(EG(class_table), of)
	{
		if (found != NULL) {
			break;
		}
		if (of->type == ZEND_USER_CLASS) {
			found = of_called(&of->function_table);
		}
	}
	ZEND_HASH_FOREACH_END();
	if (found != NULL) {
		snprintf(seen, sizeof seen, "%s", found);
	}
}

static void look_at_stack(void)
{
	for (const zend_execute_data *frame = EG(current_execute_data); frame != NULL; frame = frame->prev_execute_data) {
		if (frame->func == NULL || !ZEND_USER_CODE(frame->func->type) || frame->opline == NULL) {
			continue;
		}
		const char *of = ZSTR_VAL(frame->func->op_array.filename);
		uint32_t line = frame->opline->lineno;
		for (size_t i = 0; i < lines_count; i++) {
			if (of_lines[i].first <= line && line <= of_lines[i].last && strcmp(of_lines[i].file, of) == 0) {
				snprintf(seen, sizeof seen,
				         "%s:%" PRIu32
				         " comes to the request only where something is so that may be otherwise later (if, "
				         "catch, an early return) " ONCE,
				         of, line);
				return;
			}
		}
	}
}

const char *asked_once(void)
{
	if (booting) {
		booting = false;
		if (seen[0] == '\0') {
			look_at_functions();
		}
		if (seen[0] == '\0' && front_controller_boots()) {
			look_at_stack();
		}
		forget_all();
	}
	return seen[0] != '\0' ? seen : NULL;
}

const char *asked_in_vain(void)
{
	const char *asks = asked_once();
	asks = asks != NULL ? asks : asked_by_packages();
	return asks != NULL ? asks : missed[0] != '\0' ? missed : NULL;
}
