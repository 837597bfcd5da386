/* What settled.h says. It goes by names and by what stands in one file; in doubt a condition is not settled. */
#include "settled.h"

#include "php.h"
#include "zend_compile.h"
#include "zend_constants.h"

#include <string.h>

/* Variables of a request as $_SERVER has them, by how they begin. The others are the environment's. */
static const char *const of_a_request[] = {
    "HTTP",      "REQUEST_", "REMOTE_",      "SERVER_",  "QUERY_STRING", "PATH_INFO", "PATH_TRANSLATED",
    "PHP_SELF",  "SCRIPT",   "DOCUMENT_URI", "ORIG_",    "REDIRECT_",    "CONTENT_",  "PHP_AUTH",
    "AUTH_TYPE", "SSL_",     "HAYATE_",      "GATEWAY_", "argv",         "argc",
};

bool settled_is_of_request(const char *name)
{
	/* Of the command line unless PHP makes them of the query. */
	return IS_ONE_OF(of_a_request, name, true) && (strncmp(name, "arg", 3) != 0 || PG(register_argc_argv));
}

bool settled_environment_is_of_request(void)
{
	return strpbrk(PG(variables_order), "eE") != NULL;
}

/* Variables of the function that is looked into, from `variables_first` on, and constants of the project, that are the
 * same for all requests. More than these are not known. */
static const char *variables[32];
static size_t variables_first, variables_count;
static char *constants[64];
static size_t constants_count;

/* Variables of the file that are changed in other ways than by `$name = value`, or may be; all of them, perhaps. */
static HashTable doubted;
static bool all_doubted;

/* Whether a variable that is this part of a tree is read there, or assigned to as asked_once_walk.c sees it. `call` is
 * what a list of arguments belongs to. */
static bool is_read(zend_ast *ast, uint32_t part, zend_ast *call)
{
	switch (ast->kind) {
	case ZEND_AST_BINARY_OP:
	case ZEND_AST_AND:
	case ZEND_AST_OR:
	case ZEND_AST_UNARY_OP:
	case ZEND_AST_GREATER:
	case ZEND_AST_GREATER_EQUAL:
	case ZEND_AST_ISSET:
	case ZEND_AST_EMPTY:
	case ZEND_AST_CONDITIONAL:
	case ZEND_AST_COALESCE:
	case ZEND_AST_ECHO:
	case ZEND_AST_PRINT:
	case ZEND_AST_RETURN:
	case ZEND_AST_CAST:
	case ZEND_AST_ENCAPS_LIST:
	case ZEND_AST_INCLUDE_OR_EVAL:
	case ZEND_AST_IF_ELEM:
	case ZEND_AST_SWITCH:
	case ZEND_AST_MATCH:
	case ZEND_AST_WHILE:
	case ZEND_AST_DO_WHILE:
	case ZEND_AST_STMT_LIST:
	case ZEND_AST_ASSIGN:
	case ZEND_AST_ASSIGN_OP:
	case ZEND_AST_ASSIGN_COALESCE:
	case ZEND_AST_METHOD_CALL:
	case ZEND_AST_NULLSAFE_METHOD_CALL:
	case ZEND_AST_CALL:
	case ZEND_AST_PROP:
		return true;
	case ZEND_AST_FOREACH:
		return part == 0;
	case ZEND_AST_DIM:
		return part == 1;
	case ZEND_AST_ARRAY_ELEM:
		return ast->attr == 0;
	case ZEND_AST_ARG_LIST: {
		const char *name = call != NULL ? ast_called(call) : NULL;
		const zend_function *known = NULL;
		if (name != NULL) {
			zend_string *lower = zend_string_init(name, strlen(name), false);
			zend_str_tolower(ZSTR_VAL(lower), ZSTR_LEN(lower));
			known = zend_hash_find_ptr(CG(function_table), lower);
			zend_string_release(lower);
		}
		return known != NULL && known->type == ZEND_INTERNAL_FUNCTION && !ARG_SHOULD_BE_SENT_BY_REF(known, part + 1);
	}
	default:
		return ast_is_exit(ast);
	}
}

static void doubt(zend_ast *variable)
{
	const char *name = ast_literal(variable->child[0]);
	if (name == NULL) {
		all_doubted = true;
	} else {
		zend_hash_str_add_empty_element(&doubted, name, strlen(name));
	}
}

/* $GLOBALS['a'], by any name. */
static bool is_global(zend_ast *ast)
{
	zend_ast *of = ast->kind == ZEND_AST_DIM ? ast->child[0] : NULL;
	const char *name = of != NULL && of->kind == ZEND_AST_VAR ? ast_literal(of->child[0]) : NULL;
	return name != NULL && strcmp(name, "GLOBALS") == 0;
}

/* `target`: it is assigned to, as [$a, $b] or $GLOBALS['a']. */
static void find_doubted(zend_ast *ast, bool target, zend_ast *call)
{
	uint32_t count = 0;
	zend_ast **child = NULL;
	if (!ast_is_leaf(ast)) {
		child = ast_children(ast, &count);
	} else if (ast != NULL && ast->kind >= ZEND_AST_FUNC_DECL && ast->kind <= ZEND_AST_ARROW_FUNC) {
		child = ((zend_ast_decl *)ast)->child;
		count = 3; /* parameters, what a closure uses, statements */
	}
	if (count == 0) {
		return;
	}
	const char *called = ast_called(ast);
	all_doubted |= called != NULL && (strcasecmp(called, "extract") == 0 || strcasecmp(called, "parse_str") == 0);
	all_doubted |= ast->kind == ZEND_AST_INCLUDE_OR_EVAL && ast->attr == ZEND_EVAL;
	for (uint32_t i = 0; i < count; i++) {
		if (child[i] == NULL) {
			continue;
		}
		bool aimed = (target && ast->kind != ZEND_AST_DIM) || (ast->kind == ZEND_AST_FOREACH && (i == 1 || i == 2)) ||
		             (ast->kind == ZEND_AST_ASSIGN && i == 0 && child[i]->kind != ZEND_AST_VAR);
		if (ast->kind == ZEND_AST_CLOSURE_USES) {
			const char *name = child[i]->attr & ZEND_BIND_REF ? ast_literal(child[i]) : NULL;
			if (name != NULL) {
				zend_hash_str_add_empty_element(&doubted, name, strlen(name));
			}
		} else if (is_global(child[i])) {
			bool assigned = i == 0 && (ast->kind == ZEND_AST_ASSIGN || ast->kind == ZEND_AST_ASSIGN_OP ||
			                           ast->kind == ZEND_AST_ASSIGN_COALESCE);
			all_doubted |= aimed || assigned || !is_read(ast, i, call);
		} else if (child[i]->kind == ZEND_AST_VAR) {
			if (aimed || !is_read(ast, i, call)) {
				doubt(child[i]);
			}
		}
		find_doubted(child[i], aimed, ast);
	}
}

void settled_variables_of(zend_ast *file)
{
	zend_hash_init(&doubted, 8, NULL, NULL, true);
	all_doubted = false;
	find_doubted(file, false, NULL);
}

void settled_variables_over(void)
{
	zend_hash_destroy(&doubted);
}

void settled_variables_forget(void)
{
	variables_count = variables_first;
}

static size_t find_variable(const char *name)
{
	for (size_t i = variables_first; i < variables_count; i++) {
		if (strcmp(variables[i], name) == 0) {
			return i;
		}
	}
	return SIZE_MAX;
}

void settled_variable(const char *name, bool is)
{
	size_t found = find_variable(name);
	if (found != SIZE_MAX) {
		variables[found] = variables[--variables_count];
	}
	is = is && !all_doubted && !zend_hash_str_exists(&doubted, name, strlen(name));
	if (is && variables_count < sizeof variables / sizeof variables[0]) {
		variables[variables_count++] = name;
	}
}

/* Variables that the statements just before have given what the environment has. */
static const char *just_given[8];
static size_t just_given_count;

static bool is_just_given(const char *name)
{
	for (size_t i = 0; i < just_given_count; i++) {
		if (strcmp(just_given[i], name) == 0) {
			return true;
		}
	}
	return false;
}

size_t settled_variables_hide(void)
{
	size_t hidden = variables_first;
	variables_first = variables_count;
	return hidden;
}

void settled_variables_restore(size_t hidden)
{
	variables_count = variables_first;
	variables_first = hidden;
}

void settled_constant(const char *name)
{
	if (constants_count < sizeof constants / sizeof constants[0]) {
		constants[constants_count++] = pestrdup(name, true);
	}
}

/* What PHP itself calls this way to run: PHP_SAPI or php_sapi_name(). */
static bool is_sapi(zend_ast *ast)
{
	if (ast == NULL || (ast->kind != ZEND_AST_CONST && ast->kind != ZEND_AST_CALL)) {
		return false;
	}
	const char *name = ast_literal(ast->child[0]);
	return name != NULL && (ast->kind == ZEND_AST_CONST ? strcmp(name_last_part(name), "PHP_SAPI") == 0
	                                                    : strcasecmp(name_last_part(name), "php_sapi_name") == 0);
}

bool settled_for_console(zend_ast *condition)
{
	if (condition == NULL) {
		return false;
	}
	if (condition->kind == ZEND_AST_AND) {
		return settled_for_console(condition->child[0]);
	}
	if (condition->kind != ZEND_AST_BINARY_OP ||
	    (condition->attr != ZEND_IS_IDENTICAL && condition->attr != ZEND_IS_EQUAL)) {
		return false;
	}
	const char *left = ast_literal(condition->child[0]), *right = ast_literal(condition->child[1]);
	zend_ast *other = condition->child[left != NULL ? 1 : 0];
	const char *sapi = left != NULL ? left : right;
	return sapi != NULL && (strcmp(sapi, "cli-server") == 0 || strcmp(sapi, "cli") == 0) && is_sapi(other);
}

/* Functions whose answers are the same for as long as this PHP and the place of the project, for the same arguments. */
static const char *const settled[] = {"version_compare", "phpversion", "php_sapi_name", "dirname", "basename",
                                      "rtrim",           "ltrim",      "trim",          "sprintf", "implode"};
/* What is there by the end of the boot stays there; so they are settled where they are asked for what is missing. */
static const char *const stays[] = {"extension_loaded", "function_exists", "class_exists", "interface_exists",
                                    "defined"};
/* The same where the process ends without: nothing is ever served then. What is there may be gone later, and what is
 * missing come: by a file sites are closed for a while. */
static const char *const needed[] = {"file_exists", "is_file", "is_dir", "is_readable", "is_writable"};

/* What a condition decides. */
enum decides {
	WHAT_RUNS,  /* whether something runs */
	WHAT_LACKS, /* whether the process ends, for it says no of something */
};

static bool is_settled(zend_ast *condition, bool negated, enum decides decides);

static bool all_settled(zend_ast_list *list)
{
	for (uint32_t i = 0; list != NULL && i < list->children; i++) {
		if (!is_settled(list->child[i], false, WHAT_RUNS)) {
			return false;
		}
	}
	return list != NULL;
}

/* A variable of the environment: getenv('NAME'), $_ENV['NAME'], $_SERVER['NAME']; what was given it just before, or is
 * given it here. */
static bool is_of_environment(zend_ast *ast)
{
	if (ast != NULL && ast->kind == ZEND_AST_VAR) {
		const char *name = ast_literal(ast->child[0]);
		return name != NULL && is_just_given(name);
	}
	if (ast != NULL && ast->kind == ZEND_AST_ASSIGN) {
		return ast->child[0]->kind == ZEND_AST_VAR && ast->child[1]->kind != ZEND_AST_VAR &&
		       is_of_environment(ast->child[1]);
	}
	const char *function = ast_called(ast);
	if (function != NULL && strcasecmp(function, "getenv") == 0) {
		zend_ast_list *arguments = ast_arguments(ast);
		const char *name = arguments != NULL && arguments->children > 0 ? ast_literal(arguments->child[0]) : NULL;
		return name != NULL && !settled_is_of_request(name);
	}
	if (ast == NULL || ast->kind != ZEND_AST_DIM || ast->child[0] == NULL || ast->child[0]->kind != ZEND_AST_VAR) {
		return false;
	}
	const char *variable = ast_literal(ast->child[0]->child[0]), *key = ast_literal(ast->child[1]);
	return variable != NULL && key != NULL && (strcmp(variable, "_ENV") == 0 || strcmp(variable, "_SERVER") == 0) &&
	       !settled_is_of_request(key);
}

/* A comparison of a variable of the environment with false or null, which says that it is missing. */
static bool lacks_environment(zend_ast *comparison)
{
	if (comparison->attr != ZEND_IS_IDENTICAL && comparison->attr != ZEND_IS_EQUAL) {
		return false;
	}
	for (int i = 0; i < 2; i++) {
		zend_ast *one = comparison->child[i];
		const char *name = one->kind == ZEND_AST_CONST ? ast_literal(one->child[0]) : NULL;
		if (name != NULL &&
		    (strcasecmp(name_last_part(name), "false") == 0 || strcasecmp(name_last_part(name), "null") == 0)) {
			return is_of_environment(comparison->child[1 - i]);
		}
	}
	return false;
}

/* A constant of PHP or of an extension, or one that the project has made of what is settled. */
static bool is_settled_constant(const char *name)
{
	name = name_last_part(name);
	if (strcasecmp(name, "true") == 0 || strcasecmp(name, "false") == 0 || strcasecmp(name, "null") == 0) {
		return true;
	}
	for (size_t i = 0; i < constants_count; i++) {
		if (strcmp(constants[i], name) == 0) {
			return true;
		}
	}
	zval *found = zend_hash_str_find(EG(zend_constants), name, strlen(name));
	return found != NULL && ZEND_CONSTANT_MODULE_NUMBER((zend_constant *)Z_PTR_P(found)) != PHP_USER_CONSTANT;
}

static bool is_settled_call(zend_ast *call, bool negated, enum decides decides)
{
	const char *name = ast_called(call);
	if (name == NULL || !all_settled(ast_arguments(call))) {
		return name != NULL && negated && decides == WHAT_LACKS && is_of_environment(call);
	}
	return IS_ONE_OF(settled, name, false) || (negated && IS_ONE_OF(stays, name, false)) ||
	       (negated && decides == WHAT_LACKS && (IS_ONE_OF(needed, name, false) || is_of_environment(call)));
}

/* Whether a condition is the same for all requests, so that it may be asked once. Not so is what calls the project's
 * own functions, which may ask for an address. */
static bool is_settled(zend_ast *condition, bool negated, enum decides decides)
{
	if (condition == NULL) {
		return false;
	}
	switch (condition->kind) {
	case ZEND_AST_ZVAL:
	case ZEND_AST_MAGIC_CONST:
	case ZEND_AST_CLASS_NAME:
		return true;
	case ZEND_AST_AND:
	case ZEND_AST_OR:
		return is_settled(condition->child[0], negated, decides) && is_settled(condition->child[1], negated, decides);
	case ZEND_AST_BINARY_OP:
		if (decides == WHAT_LACKS && !negated && lacks_environment(condition)) {
			return true;
		}
		return is_settled(condition->child[0], false, WHAT_RUNS) && is_settled(condition->child[1], false, WHAT_RUNS);
	case ZEND_AST_GREATER:
	case ZEND_AST_GREATER_EQUAL:
		return is_settled(condition->child[0], false, WHAT_RUNS) && is_settled(condition->child[1], false, WHAT_RUNS);
	case ZEND_AST_UNARY_OP:
		return condition->attr == ZEND_BOOL_NOT && is_settled(condition->child[0], !negated, decides);
	case ZEND_AST_ENCAPS_LIST:
		return all_settled(zend_ast_get_list(condition));
	case ZEND_AST_CONST: {
		const char *name = ast_literal(condition->child[0]);
		return name != NULL && is_settled_constant(name);
	}
	case ZEND_AST_VAR: {
		const char *name = ast_literal(condition->child[0]);
		bool lacks = negated && decides == WHAT_LACKS && is_of_environment(condition);
		return name != NULL && (lacks || find_variable(name) != SIZE_MAX);
	}
	case ZEND_AST_ASSIGN:
		return negated && decides == WHAT_LACKS && is_of_environment(condition);
	case ZEND_AST_INSTANCEOF:
		/* of what the boot has made: it is that in each request */
		return true;
	case ZEND_AST_EMPTY:
		return decides == WHAT_LACKS && !negated && is_of_environment(condition->child[0]);
	case ZEND_AST_ISSET:
		return decides == WHAT_LACKS && negated && is_of_environment(condition->child[0]);
	case ZEND_AST_CALL:
		return is_settled_call(condition, negated, decides);
	default:
		return false;
	}
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

/* Whether a block ends the process and does not leave before: where it runs, no request is ever handled. */
static bool ends_process(zend_ast *block)
{
	if (ast_is_exit(block) || (block != NULL && block->kind == ZEND_AST_THROW)) {
		return true;
	}
	zend_ast_list *list = block != NULL && block->kind == ZEND_AST_STMT_LIST ? zend_ast_get_list(block) : NULL;
	uint32_t count = list == NULL ? 0 : list->children;
	for (uint32_t i = 0; i + 1 < count; i++) {
		if (!goes_on(list->child[i])) {
			return false;
		}
	}
	return count > 0 && ends_process(list->child[count - 1]);
}

/* Whether statements only read the configuration, as CakePHP's skeleton does: it ends where there is none. */
static bool reads_configuration(zend_ast *statements)
{
	zend_ast_list *list = zend_ast_get_list(statements);
	for (uint32_t i = 0; i < list->children; i++) {
		const zend_ast *one = list->child[i];
		const char *of = one != NULL && one->kind == ZEND_AST_STATIC_CALL ? ast_literal(one->child[0]) : NULL;
		if (of == NULL || strcasecmp(name_last_part(of), "Configure") != 0) {
			return false;
		}
	}
	return true;
}

static bool all_end_process(zend_ast *catches)
{
	zend_ast_list *list = zend_ast_get_list(catches);
	for (uint32_t i = 0; i < list->children; i++) {
		if (!ends_process(list->child[i]->child[2])) {
			return false;
		}
	}
	return true;
}

bool settled_ends_for_want(zend_ast *ast)
{
	switch (ast->kind) {
	case ZEND_AST_TRY:
		return ast->child[2] == NULL && reads_configuration(ast->child[0]) && all_end_process(ast->child[1]);
	case ZEND_AST_IF_ELEM:
		return ends_process(ast->child[1]) && is_settled(ast->child[0], false, WHAT_LACKS);
	case ZEND_AST_AND:
	case ZEND_AST_OR:
		return ends_process(ast->child[1]) && is_settled(ast->child[0], ast->kind == ZEND_AST_OR, WHAT_LACKS);
	case ZEND_AST_COALESCE:
		return ends_process(ast->child[1]) && is_of_environment(ast->child[0]);
	case ZEND_AST_CONDITIONAL: /* getenv('NAME') ?: exit */
		return ast->child[1] == NULL && ends_process(ast->child[2]) && is_settled(ast->child[0], true, WHAT_LACKS);
	default:
		return false;
	}
}

/* Whether a statement does nothing but end the process for want of something. */
static bool only_ends_for_want(zend_ast *statement)
{
	zend_ast_list *branches = statement->kind == ZEND_AST_IF ? zend_ast_get_list(statement) : NULL;
	for (uint32_t i = 0; branches != NULL && i < branches->children; i++) {
		if (branches->child[i]->child[0] == NULL || !settled_ends_for_want(branches->child[i])) {
			return false;
		}
	}
	return branches != NULL;
}

void settled_after(zend_ast *statement)
{
	if (statement == NULL) {
		just_given_count = 0;
		return;
	}
	if (statement->kind == ZEND_AST_ASSIGN && is_of_environment(statement)) {
		const char *name = ast_literal(statement->child[0]->child[0]);
		if (name != NULL && just_given_count < sizeof just_given / sizeof just_given[0]) {
			just_given[just_given_count++] = name;
			return;
		}
	}
	if (!only_ends_for_want(statement)) {
		just_given_count = 0;
	}
}

/* Whether a branch of `if` decides nothing: its condition is settled, or it is not for here. */
static bool decides_nothing(zend_ast *branch)
{
	return branch == NULL || settled_for_console(branch->child[0]) || settled_ends_for_want(branch) ||
	       is_settled(branch->child[0], false, WHAT_RUNS);
}

bool settled_runs_sometimes(zend_ast *ast, uint32_t part)
{
	switch (ast->kind) {
	case ZEND_AST_IF: {
		zend_ast_list *branches = zend_ast_get_list(ast);
		for (uint32_t i = 0; i < part; i++) {
			if (!decides_nothing(branches->child[i])) {
				return true;
			}
		}
		return false;
	}
	case ZEND_AST_IF_ELEM:
		return part == 1 && ast->child[0] != NULL && !is_settled(ast->child[0], false, WHAT_RUNS);
	case ZEND_AST_AND:
	case ZEND_AST_OR:
		return part == 1 && !is_settled(ast->child[0], ast->kind == ZEND_AST_OR, WHAT_RUNS);
	case ZEND_AST_CONDITIONAL:
		return part > 0 && !is_settled(ast->child[0], false, WHAT_RUNS);
	case ZEND_AST_COALESCE:
	case ZEND_AST_ASSIGN_COALESCE:
	case ZEND_AST_WHILE:
	case ZEND_AST_SWITCH:
	case ZEND_AST_MATCH:
	case ZEND_AST_TRY: /* what it catches */
		return part == 1;
	case ZEND_AST_FOR:
		return part >= 2;
	case ZEND_AST_FOREACH:
		return part == 3;
	default:
		return false;
	}
}

static bool may_leave(zend_ast *ast, bool sometimes)
{
	if (ast_is_leaf(ast) || (ast->kind == ZEND_AST_IF_ELEM && settled_for_console(ast->child[0]))) {
		return false;
	}
	if (ast->kind == ZEND_AST_RETURN || ast->kind == ZEND_AST_GOTO) {
		return sometimes;
	}
	uint32_t count;
	zend_ast **child = ast_children(ast, &count);
	for (uint32_t i = 0; i < count; i++) {
		if (may_leave(child[i], sometimes || settled_runs_sometimes(ast, i))) {
			return true;
		}
	}
	return false;
}

bool settled_may_leave(zend_ast *statement)
{
	return may_leave(statement, false);
}

bool settled_value(zend_ast *value)
{
	return is_settled(value, false, WHAT_RUNS);
}
