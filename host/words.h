/*
 * What code is about, by the names that it uses, without regard to case. A class may have its name space, of which
 * nothing is asked. Functions that draw are frozen_draws()'s.
 */
#ifndef HAYATE_WORDS_H
#define HAYATE_WORDS_H

#include <stdbool.h>

bool word_is_superglobal(const char *variable);
/* A function that takes or gives what belongs to the request: its headers, its output, its session. */
bool word_asks(const char *function);
/* A method that makes a request of the superglobals. */
bool word_asks_method(const char *method);
/* A static method of a class that stands for the request, but for those that only set something up. */
bool word_asks_class(const char *class_name, const char *method);
/* A function or method that asks a container for what it holds by a name. */
bool word_gives(const char *function);
/* A class whose objects are requests. */
bool word_is_request(const char *class_name);
bool word_prints(const char *function);
/* A method that reads the clock or draws; the class of a static one, or NULL. */
bool word_draws_method(const char *class_name, const char *method);
/* A class whose objects hold the time or a random number from the beginning. */
bool word_draws_class(const char *class_name);
/* A function that looks for a variable of the environment. */
bool word_of_environment(const char *function);
/* A function that turns somebody away as exit does, always or where its first argument is so. */
bool word_aborts(const char *function);
/* A function of PHP's own that keeps a function for later; the others that are given one call it. */
bool word_keeps(const char *function);
/* One of these that keeps it for errors. */
bool word_hears_errors(const char *function);

#endif
