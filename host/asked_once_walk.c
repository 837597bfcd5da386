/*
 * Looks into the syntax tree of a file of the project's own, from top to bottom: what runs as it is included, what when
 * a function is called, and what only where something is so. It notes what asked_once.c is about, and leaves the tree
 * as it is, but for functions without a name that would be a reason: they are given a first statement by which they say
 * that they run.
 */
#include "asked_once.h"
#include "explain.h"
#include "host.h"
#include "settled.h"
#include "words.h"

#include "zend_compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All of the file that is looked into, and the variables that are called in it, as $f(). */
static zend_ast *whole;
static HashTable called_variables;
static bool called_variables_known;
/* One that hears of errors, of which a boot may have some: what it looks at then is for its message. */
static const zend_ast *of_errors;

static void look(zend_ast *ast, struct place place);

static void look_at_declared(zend_ast *ast, struct place place)
{
	const zend_ast_decl *function = (zend_ast_decl *)ast;
	zend_ast_list *parameters = function->child[0] != NULL ? zend_ast_get_list(function->child[0]) : NULL;
	for (uint32_t i = 0; parameters != NULL && i < parameters->children; i++) {
		const char *type = ast_literal(parameters->child[i]->child[0]);
		if (type != NULL && word_is_request(type)) {
			asked_once_note(ASKS, "argument ", type, parameters->child[i], place);
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
		asked_once_note_reason(why);
		free(why);
	} else if (why != NULL) {
		number(function, asked_once_note_closure(why));
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

/* CakePHP's skeleton asks for the host and the scheme in this file, and does nothing without. That it asks no more is
 * seen by the file's text, before it runs (crates/hayate/src/framework/requests.rs). */
static bool is_known_by_its_text(void)
{
	const char *run = options_env("HAYATE_RUN"), *name = "/config/bootstrap.php";
	const char *file = asked_once_file();
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
	if (word_asks(function) || asked_once_gives_request(function, arguments)) {
		asked_once_note(ASKS, "", function, ast, place);
	} else if (frozen_draws(function)) {
		asked_once_note(DRAWS, "", function, ast, place);
	} else if (place.sometimes && word_prints(function)) {
		asked_once_note(ANSWERS, "", function, ast, place);
	}
	if (strcmp(lower, "define") == 0) {
		look_at_definition(arguments);
	}
	if (word_of_environment(lower)) {
		if (arguments != NULL && arguments->children == 0) {
			asked_once_note(ASKS, "environment: ", "all of it", ast, place);
		}
		const char *name = arguments != NULL && arguments->children > 0 ? ast_literal(arguments->child[0]) : NULL;
		if (name != NULL && settled_is_of_request(name) && !is_known_by_its_text()) {
			asked_once_note(ASKS, "environment: ", name, ast, place);
		}
	}
	bool has_condition = word_aborts(lower) && strcmp(lower, "abort") != 0;
	if (word_aborts(lower) && (place.sometimes || (has_condition && arguments != NULL && arguments->children > 0 &&
	                                               !settled_value(arguments->child[0])))) {
		asked_once_note(ANSWERS, "", lower, ast, place);
	}
	if (word_hears_errors(lower) && arguments != NULL && arguments->children > 0) {
		of_errors = arguments->child[0];
	}
	for (uint32_t i = 0; of_php && !word_keeps(lower) && arguments != NULL && i < arguments->children; i++) {
		look_at_called(arguments->child[i], place);
	}
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
		asked_once_note(ANSWERS, "", "include", ast, place);
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
			asked_once_note_lines(&list->child[i + 1], list->children - i - 1);
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
		asked_once_note(ASKS, "", text, ast, place);
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
		asked_once_note(ANSWERS, "", "exit", ast, place);
	}
	switch (ast->kind) {
	case ZEND_AST_STMT_LIST:
		look_at_list(ast, place);
		return;
	case ZEND_AST_ECHO:
	case ZEND_AST_PRINT:
	case ZEND_AST_THROW:
		if (place.sometimes) {
			asked_once_note(ANSWERS, "", ast->kind == ZEND_AST_THROW ? "throw" : "echo", ast, place);
		}
		break;
	case ZEND_AST_RETURN:
		if (place.sometimes && !front_controller_boots() && asked_once_in_front_controller()) {
			/* What it would have returned else is not asked for any more. */
			asked_once_note(ANSWERS, "", "return", ast, place);
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
		asked_once_look_at_method_call(ast, place);
		break;
	case ZEND_AST_NEW: {
		const char *class_name = ast_literal(ast->child[0]);
		if (class_name != NULL && (word_draws_class(class_name) || frozen_draws_class(name_last_part(class_name)))) {
			asked_once_note(DRAWS, "new ", class_name, ast, place);
		}
		break;
	}
	case ZEND_AST_PROP:
	case ZEND_AST_NULLSAFE_PROP:
		asked_once_look_at_property(ast, place);
		break;
	case ZEND_AST_DIM:
		if (asked_once_look_at_element(ast, place)) {
			look(ast->child[1], place);
			return;
		}
		break;
	case ZEND_AST_VAR: {
		const char *name = ast_literal(ast->child[0]);
		if (name != NULL && asked_once_is_superglobal(name)) {
			asked_once_note(ASKS, "$", name, ast, place);
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
			asked_once_note_lines(&child[i], 1);
			of_child.sometimes = true;
		}
		if (i == 0 && ast->kind == ZEND_AST_ASSIGN && child[i]->kind == ZEND_AST_DIM &&
		    ast_literal(child[i]->child[1]) != NULL && strcmp(ast_literal(child[i]->child[1]), "request") == 0) {
			continue; /* a container is told how the request is made */
		}
		if (i == 0 && ast->kind == ZEND_AST_ASSIGN && asked_once_is_global_by_unknown_name(child[i])) {
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

void asked_once_walk(zend_ast *file)
{
	whole = file;
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
