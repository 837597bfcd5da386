/*
 * What a project's own code asks for before its front controller handles a request (front_controller.c). Such code runs
 * once, in the boot, and what it found holds for all visitors. So an application is served in classic mode where its
 * code
 *
 * - looks at the request, or at the top level of a file also draws or reads the clock;
 * - turns somebody away, says something, or goes on to the request only where something is so that may be otherwise
 * later: a file that is there while the site is closed, an address that is blocked.
 *
 * It is seen in the syntax tree of each file, as PHP compiles it. The top level of a file counts as run; a function
 * with a name counts where it was called before the boot's end, which its run-time cache tells. Where in that code the
 * boot stands when the request is to be handled, the stack tells.
 *
 * It goes by names, and a condition is doubted unless it is known to be the same for all requests. What is not seen
 * here shows in the comparison with classic mode (compare.c), for the URLs that it asks for. OPcache's own files of an
 * earlier server (opcache.file_cache) are not looked into.
 */
#include "explain.h"
#include "host.h"
#include "settled.h"

#include "zend_compile.h"
#include "zend_language_scanner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const superglobals[] = {"_GET", "_POST", "_COOKIE", "_REQUEST", "_FILES", "_SESSION"};
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
/* Functions that print. */
static const char *const prints[] = {
    "readfile", "fpassthru", "passthru", "system",      "printf",         "vprintf",
    "print_r",  "var_dump",  "phpinfo",  "show_source", "highlight_file",
};
/* The same, by how they begin: of the output there is one for each visitor. */
static bool is_of_output(const char *function)
{
	return strncasecmp(function, "ob_", 3) == 0 || strncasecmp(function, "output_", 7) == 0;
}
/* Methods that make a request of the superglobals, by the names that libraries share for them. */
static const char *const methods[] = {"fromGlobals", "createFromGlobals", "createServerRequestFromGlobals", "capture"};
/* Methods that read the clock or draw: drawn once, a nonce would be one for all visitors. */
static const char *const drawing_methods[] = {
    "now", "today", "tomorrow", "yesterday", "uuid1", "uuid4", "uuid6", "uuid7", "orderedUuid", "randomBytes",
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
/* PHP's own functions that keep a function for later; the others that are given one call it. */
static const char *const keeps[] = {"spl_autoload_register", "set_error_handler", "set_exception_handler",
                                    "register_shutdown_function", "register_tick_function"};

/* ---- what was seen ---- */

/* At the top level of a file: why the boot must not go by it; empty: nothing was seen. */
static char seen[512];

/* A function of the project's own that would be a reason if it were called before the request. */
struct function {
	const char *file;
	char *name, *why;
	uint32_t line;
};
/* Lines that run only where something is so that may be otherwise later. */
struct lines {
	const char *file;
	uint32_t first, last;
};
static struct function *of_functions;
static struct lines *of_lines;
static char **files;
static size_t functions_count, lines_count, files_count;
/* The one that is looked into: its name, and all of it. */
static const char *file;
static zend_ast *whole;

/* A list with room for one more of `size` bytes; it grows where their number is a power of two. */
static void *one_more(void *list, size_t *count, size_t size)
{
	if ((*count & (*count - 1)) == 0) {
		list = perealloc(list, size * (*count == 0 ? 1 : *count * 2), true);
	}
	++*count;
	return list;
}

static void forget_all(void)
{
	for (size_t i = 0; i < functions_count; i++) {
		free(of_functions[i].name);
		free(of_functions[i].why);
	}
	for (size_t i = 0; i < files_count; i++) {
		free(files[i]);
	}
	free(of_functions);
	free(of_lines);
	free(files);
	of_functions = NULL;
	of_lines = NULL;
	files = NULL;
	functions_count = lines_count = files_count = 0;
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
	zend_ast_decl *function; /* with a name, which runs when it is called; NULL: the top level of the file */
	bool sometimes;          /* it runs only where something is so that may be otherwise later */
	bool later;              /* in a function without a name that somebody else calls, perhaps */
};

enum what { ASKS, DRAWS, ANSWERS };
static const char *const said[] = {
    [ASKS] = "looks at the request",
    [DRAWS] = "draws or reads the clock",
    [ANSWERS] = "answers, or turns somebody away, where something is so that may be otherwise later",
};

static void note(enum what what, const char *sign, const char *name, zend_ast *at, struct place place)
{
	if (place.later || (place.function == NULL && seen[0] != '\0') ||
	    (place.function != NULL && what != ASKS && !(what == ANSWERS && strcmp(name, "exit") == 0))) {
		/* What a function draws is told by the log (frozen_tell_draws()), and what it prints or throws is its own
		 * affair. */
		return;
	}
	char why[sizeof seen];
	snprintf(why, sizeof why, "%s:%" PRIu32 " %s (%s%s)", file, zend_ast_get_lineno(at), said[what], sign, name);
	if (place.function == NULL) {
		memcpy(seen, why, sizeof seen);
		return;
	}
	const char *called = ZSTR_VAL(place.function->name);
	for (size_t i = functions_count; i > 0; i--) {
		const struct function *known = &of_functions[i - 1];
		if (known->file == file && known->line == place.function->start_lineno && strcmp(known->name, called) == 0) {
			return;
		}
	}
	of_functions = one_more(of_functions, &functions_count, sizeof of_functions[0]);
	of_functions[functions_count - 1] = (struct function){
	    .file = file,
	    .name = pestrdup(called, true),
	    .line = place.function->start_lineno,
	    .why = pestrdup(why, true),
	};
}

/* ---- what runs ---- */

static void look(zend_ast *ast, struct place place);

static void look_at_declared(zend_ast *ast, struct place place)
{
	zend_ast *statements = ((zend_ast_decl *)ast)->child[2];
	size_t hidden = settled_variables_hide();
	look(statements, place);
	settled_variables_restore(hidden);
}

/* A function without a name that runs where it stands: it is called there, or returned for the includer to call. */
static void look_at_called(zend_ast *closure, struct place place)
{
	if (ast_is_closure(closure)) {
		look(((zend_ast_decl *)closure)->child[2], place);
	}
}

static void look_at_declaration(zend_ast *ast, struct place place)
{
	switch (ast->kind) {
	case ZEND_AST_CLASS: {
		zend_ast_list *members = zend_ast_get_list(((zend_ast_decl *)ast)->child[2]);
		for (uint32_t i = 0; i < members->children; i++) {
			zend_ast *member = members->child[i];
			if (member != NULL && member->kind == ZEND_AST_METHOD) {
				look_at_declared(member, (struct place){.function = (zend_ast_decl *)member});
			}
		}
		break;
	}
	case ZEND_AST_FUNC_DECL:
		look_at_declared(ast, (struct place){.function = (zend_ast_decl *)ast});
		break;
	case ZEND_AST_CLOSURE:
	case ZEND_AST_ARROW_FUNC:
		/* Who calls it is not known. Where it leads to the request, the stack will tell. */
		place.later = true;
		look_at_declared(ast, place);
		break;
	default:
		break;
	}
}

/* Whether a variable is called in code that runs, as $f(). */
static bool is_called(zend_ast *ast, const char *variable)
{
	if (ast_is_leaf(ast)) {
		return false;
	}
	if (ast->kind == ZEND_AST_CALL && ast->child[0]->kind == ZEND_AST_VAR) {
		const char *name = ast_literal(ast->child[0]->child[0]);
		if (name != NULL && strcmp(name, variable) == 0) {
			return true;
		}
	}
	uint32_t count;
	zend_ast **child = ast_children(ast, &count);
	for (uint32_t i = 0; i < count; i++) {
		if (is_called(child[i], variable)) {
			return true;
		}
	}
	return false;
}

static void look_at_assignment(zend_ast *ast, struct place place)
{
	const char *name = ast->child[0]->kind == ZEND_AST_VAR ? ast_literal(ast->child[0]->child[0]) : NULL;
	if (name == NULL) {
		return;
	}
	settled_variable(name, ast->kind == ZEND_AST_ASSIGN && !place.sometimes && settled_value(ast->child[1]));
	if (ast_is_closure(ast->child[1]) && place.function == NULL && is_called(whole, name)) {
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
	if (IS_ONE_OF(functions, function, false) || is_of_output(function)) {
		note(ASKS, "", function, ast, place);
	} else if (frozen_draws(function)) {
		note(DRAWS, "", function, ast, place);
	} else if (place.sometimes && IS_ONE_OF(prints, function, false)) {
		note(ANSWERS, "", function, ast, place);
	}
	if (strcmp(lower, "define") == 0) {
		look_at_definition(arguments);
	}
	if (strcmp(lower, "getenv") == 0) {
		const char *name = arguments != NULL && arguments->children > 0 ? ast_literal(arguments->child[0]) : NULL;
		if (name != NULL && settled_is_of_request(name)) {
			note(ASKS, "getenv ", name, ast, place);
		}
	}
	for (uint32_t i = 0; of_php && !IS_ONE_OF(keeps, lower, false) && arguments != NULL && i < arguments->children;
	     i++) {
		look_at_called(arguments->child[i], place);
	}
}

static void look_at_method_call(zend_ast *ast, struct place place)
{
	const char *called = ast_literal(ast->child[1]);
	const char *of = ast->kind == ZEND_AST_STATIC_CALL ? ast_literal(ast->child[0]) : NULL;
	if (called == NULL) {
		return;
	}
	if (IS_ONE_OF(methods, called, false)) {
		note(ASKS, "", called, ast, place);
	}
	bool draws = IS_ONE_OF(drawing_methods, called, false);
	for (size_t i = 0; of != NULL && i < sizeof static_methods / sizeof static_methods[0]; i++) {
		draws |= strcasecmp(name_last_part(of), static_methods[i].class) == 0 &&
		         strcasecmp(called, static_methods[i].method) == 0;
	}
	if (draws) {
		note(DRAWS, "", called, ast, place);
	}
}

/* $_SERVER['KEY'] and $GLOBALS['NAME']. True: all is said of it. */
static bool look_at_element(zend_ast *ast, struct place place)
{
	if (ast->child[0] == NULL || ast->child[0]->kind != ZEND_AST_VAR) {
		return false;
	}
	const char *variable = ast_literal(ast->child[0]->child[0]), *key = ast_literal(ast->child[1]);
	if (variable == NULL || key == NULL) {
		return false;
	}
	if (strcmp(variable, "_SERVER") == 0) {
		if (settled_is_of_request(key)) {
			note(ASKS, "$_SERVER ", key, ast, place);
		}
		return true; /* a variable of the environment, then */
	}
	if (strcmp(variable, "GLOBALS") == 0) {
		if (IS_ONE_OF(superglobals, key, false) || strcmp(key, "_SERVER") == 0) {
			note(ASKS, "$", key, ast, place);
		}
		return true;
	}
	return false;
}

/* A file that is included for what it does, where something is so: it may be there later, and answer. */
static void look_at_statement(zend_ast *ast, struct place place)
{
	if (ast == NULL || !place.sometimes) {
		return;
	}
	if (ast->kind == ZEND_AST_INCLUDE_OR_EVAL && ast->attr != ZEND_EVAL) {
		zend_ast *path = ast->child[0];
		while (path->kind == ZEND_AST_BINARY_OP && path->child[1] != NULL) {
			path = path->child[1];
		}
		const char *end = ast_literal(path);
		size_t len = end == NULL ? 0 : strlen(end);
		if (len < strlen("autoload.php") || strcmp(end + len - strlen("autoload.php"), "autoload.php") != 0) {
			note(ANSWERS, "", "include", ast, place);
		}
	}
}

static void look_at_list(zend_ast *ast, struct place place)
{
	zend_ast_list *list = zend_ast_get_list(ast);
	for (uint32_t i = 0; i < list->children; i++) {
		look_at_statement(list->child[i], place);
		look(list->child[i], place);
		if (!place.sometimes && settled_may_leave(list->child[i])) {
			note_lines(&list->child[i + 1], list->children - i - 1);
			place.sometimes = true;
		}
	}
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
			look_at_declaration(ast, place);
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
	case ZEND_AST_METHOD_CALL:
	case ZEND_AST_NULLSAFE_METHOD_CALL:
	case ZEND_AST_STATIC_CALL:
		look_at_method_call(ast, place);
		break;
	case ZEND_AST_NEW: {
		const char *class_name = ast_literal(ast->child[0]);
		if (class_name != NULL &&
		    (IS_ONE_OF(classes, name_last_part(class_name), false) || frozen_draws_class(name_last_part(class_name)))) {
			note(DRAWS, "new ", class_name, ast, place);
		}
		break;
	}
	case ZEND_AST_DIM:
		if (look_at_element(ast, place)) {
			look(ast->child[1], place);
			return;
		}
		break;
	case ZEND_AST_VAR: {
		const char *name = ast_literal(ast->child[0]);
		if (name != NULL && (IS_ONE_OF(superglobals, name, false) || strcmp(name, "_SERVER") == 0)) {
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
		if (i == 1 && (ast->kind == ZEND_AST_IF_ELEM || ast->kind == ZEND_AST_AND || ast->kind == ZEND_AST_OR)) {
			look_at_statement(child[i], of_child);
		}
		look(child[i], of_child);
	}
}

void asked_once_look(zend_ast *statements)
{
	files = one_more(files, &files_count, sizeof files[0]);
	file = files[files_count - 1] = pestrdup(ZSTR_VAL(zend_get_compiled_filename()), true);
	whole = statements;
	size_t hidden = settled_variables_hide();
	look(whole, (struct place){0});
	settled_variables_restore(hidden);
	whole = NULL;
}

/* ---- what has run ---- */

static const char *of_called(HashTable *table)
{
	zend_function *function;
	ZEND_HASH_FOREACH_PTR(table, function)
	{
		if (function->type != ZEND_USER_FUNCTION || RUN_TIME_CACHE(&function->op_array) == NULL) {
			continue;
		}
		const zend_op_array *code = &function->op_array;
		for (size_t i = 0; i < functions_count; i++) {
			const struct function *known = &of_functions[i];
			if (known->line == code->line_start && code->function_name != NULL &&
			    strcasecmp(known->name, ZSTR_VAL(code->function_name)) == 0 &&
			    strcmp(known->file, ZSTR_VAL(code->filename)) == 0) {
				return known->why;
			}
		}
	}
	ZEND_HASH_FOREACH_END();
	return NULL;
}

static void look_at_functions(void)
{
	if (functions_count == 0) {
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
				         "catch, an early return)",
				         of, line);
				return;
			}
		}
	}
}

const char *asked_once(void)
{
	if (seen[0] == '\0') {
		look_at_functions();
	}
	if (seen[0] == '\0') {
		look_at_stack();
	}
	forget_all();
	return seen[0] != '\0' ? seen : NULL;
}
