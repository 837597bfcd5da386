/*
 * The host's own versions of a few libc functions, by what they concern: interpose_memory.c, _heap.c,
 * _files.c, _locks.c, _sockets.c, _process.c, _calls.c (by number), _look_up.c (by name). Symbols of the executable
 * come first in every look-up, so libphp and all libraries call these. Until the point is reached, and in everything
 * that concerns only what came after it, they do what libc's do. They note what a rewind has to take back, and keep
 * what it could not.
 */
#ifndef HAYATE_REWIND_INTERPOSE_H
#define HAYATE_REWIND_INTERPOSE_H

#include "internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

/* The kernel itself: libc's syscall(), without a note (interpose_calls.c). Sets errno. */
long interpose_kernel(long number, ...);
#define syscall interpose_kernel

#define EXPORT __attribute__((visibility("default")))

/* Where to note it; NULL: nothing has to be noted yet. */
static inline struct control *watching(void)
{
	struct control *c = rewind_control;
	return c != NULL && c->active ? c : NULL;
}

/* While watching: a connection of the snapshot was used. */
static inline void connection_in_doubt(void)
{
	rewind_control->doubt = REWIND_CONNECTION;
	rewind_control->connection_used = true;
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

/* What an address range of the snapshot does not bear: it costs the worker. */
void interpose_changing_memory(uintptr_t start, uintptr_t end);

/* openings.c, before the point */
bool openings_missing(int at, const char *path, int flags);
void openings_opened(int fd, int at, const char *path, int flags, bool missing);
void openings_wrote(int fd);
void openings_closed(int fd);
void openings_truncated(int fd, const char *path);

/* Somebody writes to a file by this descriptor, or may do so from now on. */
static inline void interpose_writing(int fd)
{
	struct control *c = watching();
	if (c == NULL) {
		openings_wrote(fd);
	}
	const struct descriptor *d = c == NULL || c->watched_count == 0 ? NULL : descriptor_of(fd);
	if (d != NULL && d->watched > 0) {
		c->watched[d->watched - 1].written = true;
	}
}
/* The same of one that was not open at the point. */
void interpose_opened_to_write(int fd);
struct flock;
/* Somebody sets or gives up this record lock; NULL: it cannot be said which. */
void interpose_locking_record(int fd, const struct flock *lock);
/* The open file is locked, or is no more; not by a record lock of the process. */
void interpose_locked(int fd, bool locked);

#endif
