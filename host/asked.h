/*
 * What asked_once*.c and asked_by_packages.c have in common: how they say what they have seen.
 */
#ifndef HAYATE_ASKED_H
#define HAYATE_ASKED_H

#include "zend_ast.h"

#include <stdbool.h>

/* Bytes of a reason, with the zero at its end. */
#define LONGEST_REASON 512
#define LOOKS "looks at the request"
#define ONCE "before there is a request, so once for all visitors. To avoid it: do it in a middleware"

/* Until the boot's end. */
bool asked_once_is_booting(void);
/* $_SERVER['KEY'], $_ENV['KEY']. */
bool asked_once_is_request_in(const char *variable, const char *key);
/* Has code of this file say what it asks for; the tree is changed. */
void asked_by_packages_look(zend_ast *tree, const char *file);

#endif
