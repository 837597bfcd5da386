/*
 * By what an expression is known to ask for the request: superglobals, elements of arrays, properties, methods, and
 * what a container is asked for; a method may also draw or read the clock. It goes by names. One expression is looked
 * at, and never what it is made of: that is asked_once_walk.c's business.
 */
#include "asked_once.h"
#include "asked.h"
#include "settled.h"
#include "words.h"

#include <stdio.h>
#include <string.h>

/* $router->get('request', 'Shop::request'): a route of that name, and its handler. */
static bool is_route(const char *called, zend_ast_list *arguments)
{
	zend_ast *handler = strcasecmp(called, "get") == 0 && arguments->children > 1 ? arguments->child[1] : NULL;
	return handler != NULL && (ast_is_closure(handler) || handler->kind == ZEND_AST_ARRAY ||
	                           handler->kind == ZEND_AST_CLASS_NAME || ast_literal(handler) != NULL);
}

bool asked_once_gives_request(const char *called, zend_ast_list *arguments)
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

void asked_once_look_at_method_call(zend_ast *ast, struct place place)
{
	const char *called = ast_literal(ast->child[1]);
	const char *of = ast->kind == ZEND_AST_STATIC_CALL ? ast_literal(ast->child[0]) : NULL;
	/* By __set_state() var_export() writes an object, such as configuration that is kept. */
	if (called == NULL || strcasecmp(called, "__set_state") == 0) {
		return;
	}
	bool of_request = of != NULL && word_asks_class(of, called);
	if (word_asks_method(called) || of_request || asked_once_gives_request(called, ast_arguments(ast))) {
		char sign[256];
		snprintf(sign, sizeof sign, "%s%s", of_request ? of : "", of_request ? "::" : "");
		asked_once_note(ASKS, sign, called, ast, place);
	}
	if (strcasecmp(called, "setTrustedProxies") == 0 && names_visitor((zend_ast *)ast_arguments(ast))) {
		asked_once_note(ASKS, "setTrustedProxies ", "REMOTE_ADDR", ast, place);
	}
	if (word_draws_method(of, called)) {
		asked_once_note(DRAWS, "", called, ast, place);
	}
}

void asked_once_look_at_property(zend_ast *ast, struct place place)
{
	const char *name = ast_literal(ast->child[1]);
	const char *of = ast->child[0]->kind == ZEND_AST_VAR           ? ast_literal(ast->child[0]->child[0])
	                 : ast->child[0]->kind == ZEND_AST_PROP        ? ast_literal(ast->child[0]->child[1])
	                 : ast->child[0]->kind == ZEND_AST_STATIC_PROP ? ast_literal(ast->child[0]->child[1])
	                                                               : NULL;
	if (name != NULL && of != NULL && strcmp(name, "request") == 0 && strcmp(of, "app") == 0) {
		asked_once_note(ASKS, "$app->", name, ast, place);
	}
}

/* $config['components']['request']: how Yii is to make the request, in its configuration. */
static bool is_configuration(zend_ast *of)
{
	const char *key = of != NULL && of->kind == ZEND_AST_DIM ? ast_literal(of->child[1]) : NULL;
	return key != NULL && strcmp(key, "components") == 0;
}

bool asked_once_is_global_by_unknown_name(zend_ast *ast)
{
	if (ast->kind != ZEND_AST_DIM || ast->child[0] == NULL || ast->child[1] == NULL ||
	    ast->child[0]->kind != ZEND_AST_VAR) {
		return false;
	}
	const char *variable = ast_literal(ast->child[0]->child[0]);
	return variable != NULL && strcmp(variable, "GLOBALS") == 0 && ast_literal(ast->child[1]) == NULL;
}

bool asked_once_is_superglobal(const char *name)
{
	return word_is_superglobal(name) || (strcmp(name, "_ENV") == 0 && settled_environment_is_of_request());
}

/* $_SERVER['KEY'], $_ENV['KEY']. */
bool asked_once_is_request_in(const char *variable, const char *key)
{
	return asked_once_is_superglobal(variable) && settled_is_of_request(key);
}

bool asked_once_look_at_element(zend_ast *ast, struct place place)
{
	const char *of_container = ast_literal(ast->child[1]);
	if (of_container != NULL && strcmp(of_container, "request") == 0 && !is_configuration(ast->child[0])) {
		asked_once_note(ASKS, "", "['request']", ast, place);
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
	if (asked_once_is_global_by_unknown_name(ast)) {
		asked_once_note(ASKS, "", "$GLOBALS[…]", ast, place);
	}
	if (variable == NULL || key == NULL) {
		return false;
	}
	if (strcmp(variable, "_SERVER") == 0 || strcmp(variable, "_ENV") == 0) {
		if (asked_once_is_request_in(variable, key)) {
			asked_once_note(ASKS, variable[1] == 'S' ? "$_SERVER " : "$_ENV ", key, ast, place);
		}
		return true; /* a variable of the environment, then */
	}
	if (strcmp(variable, "GLOBALS") == 0) {
		if (asked_once_is_superglobal(key) || (strncmp(key, "arg", 3) == 0 && settled_is_of_request(key))) {
			asked_once_note(ASKS, "$", key, ast, place);
		}
		return true;
	}
	return false;
}
