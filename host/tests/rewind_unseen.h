/*
 * What the files of rewind_unseen share: the state of the boot that attacks change, and what an attack is.
 */
#ifndef HAYATE_REWIND_UNSEEN_H
#define HAYATE_REWIND_UNSEEN_H

#include "../rewind/rewind.h"

#include <stdint.h>
#include <stdio.h>
#include <signal.h>
#include <sys/stat.h>

#define PAGE 4096ul
#define PAGES 16
#define LARGE (4ul << 20)
/* Rewinds in all, and before the first attack: by then nothing but the attack makes the rewinder look. */
#define TIMES 10
#define QUIET 6
#define LEFT_OUT 99

extern uint8_t *area;     /* of 7s */
extern uint8_t *large;    /* the same, aligned to 2 MiB */
extern uint8_t *attached; /* System V shared memory */
extern void *block;
extern int file, pair[2], events, terminal;
extern FILE *stream;
/* Lives outside what is put back. */
extern struct notes {
	char maps[1 << 18], maps_now[1 << 18];
	struct stat stream;
	stack_t signal_stack;
	int shared;
	unsigned forks;
} * notes;

/* These end the process: this kernel or machine has not what it takes; the rewinder failed. */
void leave_out(const char *why);
void wrong(const char *what);
void need(bool worked, const char *what);

void make_state(void);
void *write_in_thread(void *at); /* a byte, from deep in its stack */
void tell(const char *line);     /* of what the rewinder's own comparison finds */

/* A way past the tracking: done a few times, each followed by a rewind and a comparison. */
struct attack {
	const char *name;
	void (*act)(void);
	enum rewind_doubt doubt; /* REWIND_SURE: all is put back */
};
/* The last one has no name. */
extern const struct attack attacks_of_memory[], attacks_of_descriptors[], attacks_of_children[], attacks_by_number[],
    attacks_of_process[];
/* The doubt is there at once, since this child has the descriptors as well; that of others is found by the rewind. */
bool is_in_doubt_at_once(const struct attack *attack);

/* Something else to look at, in a process of its own. */
struct look {
	const char *name;
	void (*run)(enum rewind_tracking tracking);
};
extern const struct look looks_before[], looks_at_names[], looks_at_files[];

#endif
