/*
 * Which conditions in PHP code are the same for all requests ("settled"), so that they may be asked once. All others
 * count as what may be otherwise later: a file that comes or goes, what a function of the project says, a variable.
 */
#ifndef HAYATE_SETTLED_H
#define HAYATE_SETTLED_H

#include "syntax.h"

/* Whether a variable of $_SERVER or getenv() is a request's, by its name; the others are the environment's. */
bool settled_is_of_request(const char *name);
/* Whether $_ENV has what getenv() has, and so the variables of a request: variables_order says so. Else it is what
 * code has written there. */
bool settled_environment_is_of_request(void);

/* Whether a value is the same for all requests. */
bool settled_value(zend_ast *value);
/* Whether this is never true here: that PHP runs in a console or as its own web server, and what else must be true. */
bool settled_for_console(zend_ast *condition);
/* Whether this is a branch or an alternative that ends the process, for want of something that it cannot do without. */
bool settled_ends_for_want(zend_ast *ast);
/* Whether a part of a tree, by its number, runs only where something is so that may be otherwise later, though the
 * whole runs in any case. */
bool settled_runs_sometimes(zend_ast *ast, uint32_t part);
/* Whether a statement may return, or jump, where something is so; what follows it runs only sometimes then. */
bool settled_may_leave(zend_ast *statement);

/* A file begins, and ends: it tells of which variables nothing is to be noted, for they may be changed unseen. */
void settled_variables_of(zend_ast *file);
void settled_variables_over(void);
/* A file is included, which may change each variable. */
void settled_variables_forget(void);
/* Notes that a variable now has a value that is the same for all requests, or no longer. The name must live until
 * settled_variables_restore(). */
void settled_variable(const char *name, bool is);
/* A statement was looked at, and the next one follows at once: what this has given a variable, that has it still. NULL:
 * a list of statements begins or is over. */
void settled_after(zend_ast *statement);
/* A function begins, in which none is known; returns what brings the others back. */
size_t settled_variables_hide(void);
void settled_variables_restore(size_t hidden);
/* Notes a constant of the project's own that is the same for all requests. */
void settled_constant(const char *name);

#endif
