/*
 * A stray: a process that PHP code forked by itself and that goes on running PHP (FFI, a library that daemonises). Seen
 * from inside it looks like the worker it came from: it has its number, its request, its tracking, its place in the
 * queue.
 *
 * It may run its own code, and nothing else: what it writes goes nowhere, it takes and answers no request, rewinds
 * nothing, tells the pool nothing. It ends where the host's code is reached, and when the server ends. The worker it
 * came from knows of it, and is not rewound.
 *
 * How it is known: a page that the kernel empties in every child that is forked (MADV_WIPEONFORK). Who is forked by
 * host_fork() fills it again. Children that share the memory of their parent until they run another program (vfork(),
 * posix_spawn()) run no PHP.
 */
#ifndef HAYATE_STRAY_H
#define HAYATE_STRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* NULL before stray_start(): then nobody is one. */
extern const volatile uint32_t *stray_mark;

static inline bool is_stray(void)
{
	return stray_mark != NULL && *stray_mark == 0;
}

/* First thing in the process that forks workers. NULL, or what failed. */
const char *stray_start(void);

/* fork() for the host's own children. */
pid_t host_fork(void);

/* In a worker, before it runs PHP code: from here on stray_left() knows its strays. NULL, or what failed. */
const char *stray_watch(void);

/* Called when PHP code has forked, in the child and in its parent, before either runs on. May be NULL. */
extern void (*stray_forked)(bool child);

/* Whether a stray of this worker is alive. It costs nothing in a request that has not forked. */
bool stray_left(void);

/* Ends a stray. */
void stray_end(void) __attribute__((noreturn));

#endif
