/* What syntax.h says. */
#include "syntax.h"

#include "engine.h"

#include "zend_compile.h"

#include <string.h>

bool is_one_of(const char *const *list, size_t count, const char *name, bool beginning)
{
	for (size_t i = 0; i < count; i++) {
		if (beginning ? strncmp(name, list[i], strlen(list[i])) == 0 : strcasecmp(name, list[i]) == 0) {
			return true;
		}
	}
	return false;
}

const char *name_last_part(const char *name)
{
	const char *last = strrchr(name, '\\');
	return last != NULL ? last + 1 : name;
}

const char *ast_literal(zend_ast *ast)
{
	bool is_string = ast != NULL && ast->kind == ZEND_AST_ZVAL && Z_TYPE_P(zend_ast_get_zval(ast)) == IS_STRING;
	return is_string ? Z_STRVAL_P(zend_ast_get_zval(ast)) : NULL;
}

const char *ast_called(zend_ast *ast)
{
	const char *name = ast != NULL && ast->kind == ZEND_AST_CALL ? ast_literal(ast->child[0]) : NULL;
	return name != NULL ? name_last_part(name) : NULL;
}

zend_ast_list *ast_arguments(zend_ast *call)
{
	zend_ast *list = call->child[zend_ast_get_num_children(call) - 1];
	return list != NULL && list->kind == ZEND_AST_ARG_LIST ? zend_ast_get_list(list) : NULL;
}

zend_ast **ast_children(zend_ast *ast, uint32_t *count)
{
	if (zend_ast_is_list(ast)) {
		*count = zend_ast_get_list(ast)->children;
		return zend_ast_get_list(ast)->child;
	}
	*count = zend_ast_get_num_children(ast);
	return ast->child;
}

bool ast_is_leaf(zend_ast *ast)
{
	return ast == NULL || zend_ast_is_special(ast);
}

bool ast_is_closure(zend_ast *ast)
{
	return ast != NULL && (ast->kind == ZEND_AST_CLOSURE || ast->kind == ZEND_AST_ARROW_FUNC);
}

void ast_span(zend_ast *ast, uint32_t *first, uint32_t *last)
{
	if (ast == NULL) {
		return;
	}
	uint32_t begins = zend_ast_get_lineno(ast), ends = begins;
	if (ast->kind >= ZEND_AST_FUNC_DECL && ast->kind <= ZEND_AST_ARROW_FUNC) {
		begins = ((zend_ast_decl *)ast)->start_lineno;
		ends = ((zend_ast_decl *)ast)->end_lineno;
	}
	*first = begins < *first ? begins : *first;
	*last = ends > *last ? ends : *last;
	if (ast_is_leaf(ast)) {
		return;
	}
	uint32_t count;
	zend_ast **child = ast_children(ast, &count);
	for (uint32_t i = 0; i < count; i++) {
		ast_span(child[i], first, last);
	}
}

bool ast_is_exit(zend_ast *statement)
{
	const char *called =
	    statement != NULL && statement->kind == ZEND_AST_CALL ? ast_literal(statement->child[0]) : NULL;
	return statement != NULL && engine_is_exit(statement, called);
}

zend_ast *ast_saying(const char *function, zval *what, uint32_t line)
{
	zval name;
	ZVAL_STRING(&name, function);
	zend_ast *called = zend_ast_create_zval_with_lineno(&name, line);
	zend_ast *argument = zend_ast_create_zval_with_lineno(what, line);
	called->attr = ZEND_NAME_FQ;
	return zend_ast_create(ZEND_AST_CALL, called, zend_ast_create_list(1, ZEND_AST_ARG_LIST, argument));
}
