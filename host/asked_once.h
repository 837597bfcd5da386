/*
 * What asked_once.c, asked_once_notes.c, asked_once_walk.c and asked_once_signs.c share. What others may call is in
 * host.h and asked.h.
 */
#ifndef HAYATE_ASKED_ONCE_H
#define HAYATE_ASKED_ONCE_H

#include "syntax.h"

#include <stdbool.h>
#include <stddef.h>

/* Where code stands. */
struct place {
	zend_ast_decl *function; /* which runs when it is called; NULL: the top level of the file */
	bool of_trait;
	bool sometimes; /* it runs only where something is so that may be otherwise later */
	char **closure; /* of a function without a name: why it would be a reason, or NULL */
};

enum what { ASKS, DRAWS, ANSWERS };

/* asked_once_notes.c */
void asked_once_notes_begin(void);           /* when PHP has started */
void asked_once_note_file(const char *name); /* it is looked into from now on */
const char *asked_once_file(void);           /* that one */
bool asked_once_in_front_controller(void);   /* and whether it is the project's own, included whole */
/* Something that code does, unless it can be no reason there. Of each function the first is kept, and of all top
 * levels together. */
void asked_once_note(enum what what, const char *sign, const char *name, zend_ast *at, struct place place);
/* These trees, of one list, run only sometimes. */
void asked_once_note_lines(zend_ast **trees, uint32_t count);
void asked_once_note_reason(const char *why); /* the boot must not go by it, whatever runs; the first one is kept */
/* Why a function without a name would be a reason, which is to be freed by the notes. The function's number. */
size_t asked_once_note_closure(char *why);
void asked_once_note_ran(size_t closure); /* it runs: by its number */
void asked_once_notes_over(void);         /* at the end of the boot, on its stack: which of them have run */
const char *asked_once_noted(void);       /* NULL, or the reason */

/* asked_once_walk.c */
void asked_once_walk(zend_ast *file); /* notes what it does; the tree is changed */

/* asked_once_signs.c */
/* Whether a container is asked for the request: app('request'), $app->get(Request::class). */
bool asked_once_gives_request(const char *called, zend_ast_list *arguments);
void asked_once_look_at_method_call(zend_ast *ast, struct place place);
/* $app->request, $this->app->request. */
void asked_once_look_at_property(zend_ast *ast, struct place place);
/* $_SERVER['KEY'], $GLOBALS['NAME'] and $app['request']. True: all is said of it. */
bool asked_once_look_at_element(zend_ast *ast, struct place place);
/* $GLOBALS[$name], which may be a superglobal. */
bool asked_once_is_global_by_unknown_name(zend_ast *ast);
/* Whether a superglobal may have what is of a request. */
bool asked_once_is_superglobal(const char *name);

#endif
