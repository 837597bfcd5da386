/*
 * What packages do in a boot that we run (php/boot/), before there is a request, that may be otherwise for another
 * request. A package is written for any project: of its code it counts what it does, not what it would do, which is
 * asked_once.c's business. So the keys by which it reads superglobals say that they are asked for:
 * $_COOKIE[asks('…') ?? 'name']; functions of PHP's that tell of a request say so by themselves.
 *
 * With opcache.file_cache nothing is put into the code of packages, so they do not say that they run.
 */
#include "asked.h"
#include "host.h"
#include "settled.h"
#include "syntax.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Whether it is what a visitor sends, or how and where. When a request began and by which script, libraries ask for in
 * good faith, and symfony/runtime whether there is one, before it takes what comes with it for a command line. */
static bool is_of_a_visitor(const char *variable, const char *key, const char *of)
{
	static const char *const of_visitors[] = {"_GET", "_POST", "_COOKIE", "_REQUEST", "_FILES"};
	static const char *const of_all[] = {"HTTP_PROXY", "HTTPS_",   "SSL_CERT_",       "REQUEST_TIME", "SCRIPT",
	                                     "HAYATE_",    "GATEWAY_", "SERVER_SOFTWARE", "argv",         "argc"};
	if (strcmp(variable, "_SERVER") == 0 || strcmp(variable, "_ENV") == 0) {
		bool runtime = strstr(of, "/SymfonyRuntime.php") != NULL && key != NULL && strcmp(key, "QUERY_STRING") == 0;
		return key != NULL && asked_once_is_request_in(variable, key) && !IS_ONE_OF(of_all, key, true) && !runtime;
	}
	return IS_ONE_OF(of_visitors, variable, false);
}

/* Libraries that come by the name of whatever .env has, or is asked of the environment, which is looked at where that
 * is asked (asked_of_framework.c). */
static bool reads_environment(const char *of)
{
	static const char *const readers[] = {"/Repository/Adapter/", "/Dotenv.php", "/DotenvVault.php",
	                                      "/EnvVarProcessor.php"};
	for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
		if (strstr(of, readers[i]) != NULL) {
			return true;
		}
	}
	return false;
}

/* The superglobal that this is, $_COOKIE or $GLOBALS['_COOKIE']; NULL: something else. */
static const char *superglobal(zend_ast *ast)
{
	if (ast != NULL && ast->kind == ZEND_AST_VAR) {
		return ast_literal(ast->child[0]);
	}
	if (ast == NULL || ast->kind != ZEND_AST_DIM || ast->child[0] == NULL || ast->child[0]->kind != ZEND_AST_VAR) {
		return NULL;
	}
	const char *global = ast_literal(ast->child[0]->child[0]);
	return global != NULL && strcmp(global, "GLOBALS") == 0 ? ast_literal(ast->child[1]) : NULL;
}

/* Has a key by which code of this file comes to something in `array` say so, where that may be a superglobal's. */
static void have_key_say(zend_ast **key, zend_ast *array, const char *of)
{
	const char *variable = superglobal(array), *name = ast_literal(*key);
	if (variable == NULL || *key == NULL) {
		return;
	}
	bool of_a_visitor = is_of_a_visitor(variable, name, of);
	bool by_any_name = name == NULL && strcmp(variable, "_SERVER") == 0 && (*key)->kind != ZEND_AST_ZVAL;
	if (!of_a_visitor && (!by_any_name || reads_environment(of))) {
		return;
	}
	char why[LONGEST_REASON];
	uint32_t line = zend_ast_get_lineno(array);
	/* All of it, for the code may have been compiled in another process (prime.c). */
	snprintf(why, sizeof why, "%s:%" PRIu32 " %s ($%s%s%s%s", of, line, LOOKS, variable, name != NULL ? " " : "",
	         name != NULL ? name : "", of_a_visitor ? ") " ONCE : "");
	zval text;
	ZVAL_STRING(&text, why);
	if (of_a_visitor) {
		*key = zend_ast_create(ZEND_AST_COALESCE, ast_saying("Hayate\\Boot\\asks", &text, line), *key);
		return;
	}
	zend_ast *call = ast_saying("Hayate\\Boot\\asks_by", &text, line);
	call->child[1] = zend_ast_list_add(call->child[1], *key);
	*key = call;
}

/* ['name' => $a] = $_COOKIE. */
static void have_list_say(zend_ast *list, zend_ast *array, const char *of)
{
	zend_ast_list *elements = zend_ast_get_list(list);
	for (uint32_t i = 0; i < elements->children; i++) {
		if (elements->child[i] != NULL && elements->child[i]->kind == ZEND_AST_ARRAY_ELEM) {
			have_key_say(&elements->child[i]->child[1], array, of);
		}
	}
}

void asked_by_packages_look(zend_ast *ast, const char *of)
{
	if (ast == NULL || ast->kind == ZEND_AST_ZVAL || ast->kind == ZEND_AST_CONSTANT || ast->kind == ZEND_AST_ZNODE) {
		return;
	}
	if (ast_is_leaf(ast)) {
		asked_by_packages_look(((zend_ast_decl *)ast)->child[2], of);
		return;
	}
	uint32_t count;
	zend_ast **child = ast_children(ast, &count);
	for (uint32_t i = 0; i < count; i++) {
		asked_by_packages_look(child[i], of);
	}
	const char *called = ast_called(ast);
	zend_ast_list *arguments = called != NULL ? ast_arguments(ast) : NULL;
	if (ast->kind == ZEND_AST_DIM) {
		have_key_say(&ast->child[1], ast->child[0], of);
	} else if (ast->kind == ZEND_AST_ASSIGN && ast->child[0]->kind == ZEND_AST_ARRAY) {
		have_list_say(ast->child[0], ast->child[1], of);
	} else if (arguments != NULL && arguments->children == 2 &&
	           (strcasecmp(called, "array_key_exists") == 0 || strcasecmp(called, "key_exists") == 0)) {
		have_key_say(&arguments->child[0], arguments->child[1], of);
	}
}

/* Why a package has asked; empty: none has. */
static char packages_ask[LONGEST_REASON];

/* asks(string $why): void: says that a package asks for what is of a visitor. */
static PHP_FUNCTION(asks)
{
	zend_string *why;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_STR(why)
	ZEND_PARSE_PARAMETERS_END();
	if (asked_once_is_booting() && packages_ask[0] == '\0') {
		snprintf(packages_ask, sizeof packages_ask, "%s", ZSTR_VAL(why));
	}
}

/* asks_by(string $why, mixed $key): mixed: a package asks $_SERVER for a name that is made as it runs; gives it back.
 */
static PHP_FUNCTION(asks_by)
{
	zend_string *why;
	zval *key;
	ZEND_PARSE_PARAMETERS_START(2, 2)
	Z_PARAM_STR(why)
	Z_PARAM_ZVAL(key)
	ZEND_PARSE_PARAMETERS_END();
	if (asked_once_is_booting() && packages_ask[0] == '\0' && Z_TYPE_P(key) == IS_STRING &&
	    is_of_a_visitor("_SERVER", Z_STRVAL_P(key), ZSTR_VAL(why))) {
		snprintf(packages_ask, sizeof packages_ask, "%.300s %.60s) " ONCE, ZSTR_VAL(why), Z_STRVAL_P(key));
	}
	RETURN_COPY(key);
}

void asked_by_packages_call(const char *what)
{
	if (!asked_once_is_booting() || front_controller_boots() || packages_ask[0] != '\0') {
		return;
	}
	const zend_execute_data *frame = owner_calling(EG(current_execute_data));
	if (frame != NULL && frame->opline != NULL) {
		snprintf(packages_ask, sizeof packages_ask, "%.300s:%" PRIu32 " %s (%s) " ONCE,
		         ZSTR_VAL(frame->func->op_array.filename), frame->opline->lineno, LOOKS, what);
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_asks, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, why, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_asks_by, 0, 2, IS_MIXED, 0)
ZEND_ARG_TYPE_INFO(0, why, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, key, IS_MIXED, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {ZEND_NS_FE("Hayate\\Boot", asks, arginfo_asks)
                                                    ZEND_NS_FE("Hayate\\Boot", asks_by, arginfo_asks_by) ZEND_FE_END};

void asked_by_packages_startup(void)
{
	if (options_is_project()) {
		functions_of_boot_scripts(functions);
	}
}

const char *asked_by_packages(void)
{
	return packages_ask[0] != '\0' ? packages_ask : NULL;
}
