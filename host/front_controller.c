/*
 * A project's own front controller as its worker script: php/boot/front_controller.php runs it, and the boot ends where
 * it calls the method that handles a request. HAYATE_RUN names that method, such as Slim\App::run.
 *
 * As its class is compiled, the method gets a first statement, which hands over to the boot script. In a process that
 * has not loaded that (classic mode, php-fpm by a cache of files) the statement does nothing.
 *
 * What runs before that method runs once, for all visitors. So the project's own code is looked into as it is compiled
 * in the boot (asked_once.c), and where it may do otherwise for another request, the application is served in classic
 * mode.
 */
#include "host.h"
#include "syntax.h"

#include "zend_compile.h"
#include "zend_language_scanner.h"

#include <stdio.h>
#include <string.h>

/* The method: its class's name space, without a backslash at its end, the class, and the method itself. */
static char space[128], class[128], method[64];

bool front_controller_boots(void)
{
	return method[0] != '\0';
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
			const char *name = ast_literal(one->child[0]);
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
	if (ast->kind == ZEND_AST_STMT_LIST) {
		look_for_class(ast, false);
	}
}

void front_controller_startup(void)
{
	const char *name = options_env("HAYATE_RUN");
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
	others = zend_ast_process;
	zend_ast_process = look_through;
}
