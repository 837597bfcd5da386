/*
 * What `hayate explain` is told: with --explain FILE the host appends one JSON object a line to that file. The lines
 * are documented by their reader, crates/hayate/src/explain.rs.
 *
 * Without --explain every call returns at once, but for what the log is told of the boot's random numbers. With it the
 * host behaves as always, only slower while it boots; the snapshot holds nothing more than a few words of notes.
 */
#ifndef HAYATE_EXPLAIN_H
#define HAYATE_EXPLAIN_H

#include "layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What --explain names; NULL without. */
extern const char *explain_file;

/* explain.c, in the order of calls */
void explain_boot_begins(void);    /* before the worker script runs */
void explain_boot_over(void);      /* at its first hayate_handle_request() */
void explain_handler_begins(void); /* of a warm-up request or of a visitor's */
void explain_handler_over(void);   /* while the answer's status is still known */
/* A warm-up request was made in classic mode by a process that ends then. `report` is what explain_file was before that
 * became silent. */
void explain_primed(const char *report, const char *target, uint64_t ns);
void explain_destructors_begin(void);
void explain_destructors_over(void);
/* The boot stands: there is a snapshot, which took so long, or there is to be none. */
void explain_boot_stands(bool snapshot, uint64_t ns);
/* Before the point: whether it is kept over rewinds (`why` is NULL). */
void explain_connection(const char *peer, const char *kind, const char *why);
void explain_rewound(void);                /* at the point, after a rewind */
void explain_forked(void);                 /* at the end of a process for one request */
void explain_retires(enum hy_retired why); /* instead of either */

/* explain_boot.c: what boot-time code does whose outcome all requests see */
struct frozen {
	const char *kind;
	char *what, *at; /* allocated; `at` is NULL when it is not known */
	uint64_t count;
};
void frozen_watch(bool all); /* or what is drawn by chance, and what a project's own code reads, alone */
void frozen_stop(void);      /* notes what the boot left open, and takes the watch away */
size_t frozen_list(const struct frozen **list);
void frozen_forget(void);
/* Names in the log what the boot drew by chance and read, once for all processes that boot the same: frozen_share()
 * comes before workers are forked. With --explain nothing. */
void frozen_share(void);
void frozen_tell(void);
/* Whether a function of PHP's of this name, or an object of a class of PHP's with this last part of a name, reads the
 * clock or draws. */
bool frozen_draws(const char *function);
bool frozen_draws_class(const char *name);

/* snapshot.c: the size of the blocks that ZendMM has on a page, 0 when the page is none of its. */
size_t snapshot_block_size(uintptr_t at);

#endif
