/*
 * Attacks by children: such as share the memory, and such as are left behind.
 */
#include "rewind_unseen.h"

#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

static uint8_t child_stack[16384] __attribute__((aligned(16)));

static int write_in_child(void *at)
{
	*(volatile uint8_t *)at = 9;
	return 0;
}
static void clone_with_memory(void)
{
	pid_t pid =
	    clone(write_in_child, child_stack + sizeof child_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, area + 6 * PAGE);
	need(pid > 0 && waitpid(pid, NULL, 0) == pid && area[6 * PAGE] == 9, "clone");
}
static void fork_with_memory(void)
{
	pid_t pid = vfork();
	if (pid == 0) {
		*(volatile uint8_t *)(area + 7 * PAGE) = 9;
		_exit(0);
	}
	need(pid > 0 && waitpid(pid, NULL, 0) == pid && area[7 * PAGE] == 9, "vfork");
}

/* Children that are left behind. They read what nobody writes, and end with the process that holds the other end. */

static char *const reader[] = {"cat", NULL};
static int read_in_child(void *unused)
{
	execv("/bin/cat", reader);
	_exit(1);
}
static void leave_fork(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		read_in_child(NULL);
	}
	need(pid > 0, "fork");
}
/* Whose handlers run as well. */
static void note_fork(void)
{
	notes->forks++;
}
static void fork_without_handlers(void)
{
	unsigned before = notes->forks;
	need(pthread_atfork(note_fork, NULL, NULL) == 0, "pthread_atfork");
	pid_t pid = _Fork();
	if (pid == 0) {
		_exit(0);
	}
	need(pid > 0 && waitpid(pid, NULL, 0) == pid && notes->forks == before + 1, "_Fork");
}
static void leave_spawned(void)
{
	need(posix_spawn(&(pid_t){0}, "/bin/cat", NULL, NULL, reader, NULL) == 0, "posix_spawn");
}
static void leave_spawned_by_name(void)
{
	need(posix_spawnp(&(pid_t){0}, "cat", NULL, NULL, reader, environ) == 0, "posix_spawnp");
}
static void leave_popen(void)
{
	need(popen("exec cat", "r") != NULL, "popen");
}
static void leave_clone(void)
{
	need(clone(read_in_child, child_stack + sizeof child_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL) > 0, "clone");
}
static void clone_without_memory(void)
{
	need(clone(read_in_child, child_stack + sizeof child_stack, SIGCHLD, NULL) > 0, "clone");
}

const struct attack attacks_of_children[] = {
    {"clone", clone_with_memory, REWIND_SURE},
    {"vfork", fork_with_memory, REWIND_SURE},
    {"fork left", leave_fork, REWIND_CHILD},
    {"posix_spawn left", leave_spawned, REWIND_CHILD},
    {"posix_spawnp left", leave_spawned_by_name, REWIND_CHILD},
    {"popen left", leave_popen, REWIND_CHILD},
    {"clone left", leave_clone, REWIND_CHILD},
    {"clone without memory", clone_without_memory, REWIND_CHILD},
    {"_Fork", fork_without_handlers, REWIND_SURE},
    {0},
};

bool is_in_doubt_at_once(const struct attack *attack)
{
	return attack->act == clone_without_memory;
}
