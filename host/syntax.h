/*
 * Looking into PHP's syntax trees, and adding to them. Nothing here changes one, and no text that it returns outlives
 * the tree.
 */
#ifndef HAYATE_SYNTAX_H
#define HAYATE_SYNTAX_H

#include "php.h"

#include "zend_ast.h"

#include <stdbool.h>

/* Whether a name is in a list, without regard to case; or begins with one of it, as it stands there. */
bool is_one_of(const char *const *list, size_t count, const char *name, bool beginning);
#define IS_ONE_OF(list, name, beginning) is_one_of(list, sizeof list / sizeof list[0], name, beginning)

/* A name without its name space: what `use` says of it is not looked into. */
const char *name_last_part(const char *name);
/* A string that stands there as such; NULL: something else. */
const char *ast_literal(zend_ast *ast);
/* The name of the function that is called, without its name space; NULL: it is no call of one by name. */
const char *ast_called(zend_ast *ast);
/* The arguments of a call of a function or method; NULL: `f(...)`, which calls nothing. */
zend_ast_list *ast_arguments(zend_ast *call);
/* Whether a tree ends in itself: a value, a function, a class. */
bool ast_is_leaf(zend_ast *ast);
/* The parts of one that does not; some may be NULL. */
zend_ast **ast_children(zend_ast *ast, uint32_t *count);
bool ast_is_closure(zend_ast *ast);
bool ast_is_exit(zend_ast *statement);
/* Widens a range of lines to hold the tree. */
void ast_span(zend_ast *ast, uint32_t *first, uint32_t *last);
/* A call of a function of ours with this value; it gives NULL. */
zend_ast *ast_saying(const char *function, zval *what, uint32_t line);

#endif
