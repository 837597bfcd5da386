/*
 * The host's own versions of a few libc functions, by what they concern: interpose_memory.c, _files.c, _locks.c,
 * _sockets.c, _process.c. Symbols of the executable come first in every look-up, so libphp and all libraries call
 * these. Until the point is reached, and in everything that concerns only what came after it, they do what libc's do.
 * They note what a rewind has to take back, and keep what it could not.
 */
#ifndef HAYATE_REWIND_INTERPOSE_H
#define HAYATE_REWIND_INTERPOSE_H

#include "internal.h"

#include <dlfcn.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

/* Where to note it; NULL: nothing has to be noted yet. */
static inline struct control *watching(void)
{
	struct control *c = rewind_control;
	return c != NULL && c->active ? c : NULL;
}

/* libc's own version. */
static inline void *interpose_next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	if (found == NULL) {
		abort(); /* libc without one of its own functions */
	}
	return found;
}

struct flock;
/* Somebody sets or gives up this record lock; NULL: it cannot be said which. */
void interpose_locking_record(int fd, const struct flock *lock);

#endif
