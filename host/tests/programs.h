/*
 * How tests of the rewinder begin: with the tracking that this kernel has, or the one that `--tracking` names, and with
 * those of their programs that the arguments after it name; all, if there are none.
 */
#pragma once

#include "../rewind/rewind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct arguments {
	enum rewind_tracking tracking;
	char **names;
	int count;
};

/* Ends the process with 77 where there is no tracking. */
static inline struct arguments arguments(int argc, char **argv)
{
	char why[256];
	struct arguments read = {rewind_probe(why, sizeof why), argv + 1, argc - 1};
	if (argc >= 3 && strcmp(argv[1], "--tracking") == 0) {
		read.tracking = strcmp(argv[2], "uffd") == 0 ? REWIND_UFFD : REWIND_SOFT_DIRTY;
		read.names += 2;
		read.count -= 2;
	}
	if (read.tracking == REWIND_FORK) {
		fprintf(stderr, "this kernel has no tracking: %s\n", why);
		exit(77);
	}
	return read;
}

static inline const char *tracking_name(enum rewind_tracking tracking)
{
	return tracking == REWIND_UFFD ? "uffd" : "soft-dirty";
}

static inline bool is_wanted(const struct arguments *read, const char *name)
{
	bool wanted = read->count == 0;
	for (int n = 0; n < read->count; n++) {
		wanted |= strcmp(read->names[n], name) == 0;
	}
	return wanted;
}

/* Runs one program in a process of its own, which `run` ends. True if it failed. */
static inline bool program_fails(const char *name, size_t index, enum rewind_tracking tracking,
                                 void (*run)(size_t index, enum rewind_tracking tracking))
{
	pid_t pid = fork();
	if (pid == 0) {
		run(index, tracking);
		_exit(1);
	}
	int status = 1;
	waitpid(pid, &status, 0);
	printf("%s, %s: %s\n", name, tracking_name(tracking), status == 0 ? "all as it was" : "failed");
	fflush(stdout);
	return status != 0;
}
