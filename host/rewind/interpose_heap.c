/*
 * The break, and what libc's allocator does with it. Below where it was at the point it must not come: what is cut off
 * there and asked for again is other memory, which nobody tracks.
 */
#include "interpose.h"

#include <malloc.h>

/* libc's own. A constructor of a library may come before ours. */
static int (*libc_brk)(void *);
static void *(*libc_sbrk)(intptr_t);
static int (*libc_malloc_trim)(size_t);
static int (*libc_mallopt)(int, int);

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_brk = interpose_next("brk");
	*(void **)&libc_sbrk = interpose_next("sbrk");
	*(void **)&libc_malloc_trim = interpose_next("malloc_trim");
	*(void **)&libc_mallopt = interpose_next("mallopt");
}

static inline void ready(void)
{
	if (libc_mallopt == NULL) {
		look_up();
	}
}

EXPORT int brk(void *at)
{
	struct control *c = watching();
	ready();
	if (c != NULL && (uintptr_t)at < c->brk) {
		c->doubt = REWIND_MAPPINGS;
	}
	return libc_brk(at);
}

EXPORT void *sbrk(intptr_t by)
{
	struct control *c = watching();
	ready();
	if (c != NULL && by < 0 && (uintptr_t)libc_sbrk(0) + (uintptr_t)by < c->brk) {
		c->doubt = REWIND_MAPPINGS;
	}
	return libc_sbrk(by);
}

/* Nothing to give back: what a request took goes with the rewind. It would lower the break, and throw pages away that
 * nobody has written to. */
EXPORT int malloc_trim(size_t keep)
{
	ready();
	return watching() != NULL ? 0 : libc_malloc_trim(keep);
}

/* How rewind_init() has set it, it must stay. These are hints. */
EXPORT int mallopt(int what, int value)
{
	ready();
	bool ours = what == M_TRIM_THRESHOLD || what == M_TOP_PAD || what == M_MMAP_MAX || what == M_MMAP_THRESHOLD ||
	            what == M_ARENA_MAX || what == M_ARENA_TEST;
	return rewind_control != NULL && ours ? 1 : libc_mallopt(what, value);
}
