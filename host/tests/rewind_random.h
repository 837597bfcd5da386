/* What the files of rewind_random share: the state of a random program, and what is known of it at the point. */
#ifndef HAYATE_TESTS_REWIND_RANDOM_H
#define HAYATE_TESTS_REWIND_RANDOM_H

#include "../rewind/rewind.h"

#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define PAGE 4096ul
#define AREAS 24
#define FILES 6
/* In some seeds each file is opened so often. */
#define MOST_OPEN 420
#define DIRECTORIES 3
#define LIST 2000
#define BLOCKS 200
#define TEXT (256ul << 10)

/* Lives outside what is put back. */
struct memory_of_test {
	uint64_t random;
	unsigned seed;
	long rewinds, steps;
	long doubts;
	char last[64];
	struct {
		uint8_t *at, *copy;
		size_t size;
	} areas[AREAS];
	char maps[TEXT], fds[TEXT];
	char cwd[512];
	mode_t umask;
	sigset_t mask;
	struct sigaction actions[32];
	void *brk;
	char locale[128], environment[128];
	int rounding;
	char name[16];
	/* What is left to read of each directory at the point. */
	char rest[DIRECTORIES][LIST];
};
extern struct memory_of_test *test;

/* Of the program itself; put back. */
extern uint8_t statics[3 * PAGE];
extern uint8_t initialised[2 * PAGE];
extern __thread char thread_local_state[256];
extern void *blocks[BLOCKS];
extern int files[MOST_OPEN];
extern size_t open_files;
extern DIR *directories[DIRECTORIES];
extern int locked_file; /* a record lock on it is held at the point */
extern FILE *stream;

uint64_t random_number(void);
size_t below(size_t n);
/* Says which seed, after which step, and ends the process. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* rewind_random_compare.c */
void describe(struct memory_of_test *to); /* at the point */
void compare(void);                       /* after a rewind */
void compare_directories(void);
void list(DIR *directory, char *to); /* what is left to read of it */

/* rewind_random_steps.c */
void one_step(void);
void write_somewhere(void);
void count_signal(int signal); /* a handler */

#endif
