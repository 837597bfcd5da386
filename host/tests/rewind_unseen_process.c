/*
 * Attacks on what the kernel keeps of a process: timers, signals, users, limits, registers.
 */
#include "rewind_unseen.h"

#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <time.h>
#include <ulimit.h>
#include <unistd.h>

static void set_timer(void)
{
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
}
static void set_timer_and_delete(void)
{
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_delete(timer) == 0, "timer_create");
}
static void set_signal_stack(void)
{
	stack_t other = {.ss_sp = area, .ss_size = 8 * PAGE};
	need(sigaltstack(&other, NULL) == 0, "sigaltstack");
}
static void lock_all(void)
{
	mlockall(MCL_CURRENT);
}
#ifdef __x86_64__
static void fill_x87(void)
{
	for (int i = 0; i < 8; i++) {
		__asm__ volatile("fld1");
	}
}
#endif
/* Functions of libc's that call the kernel by themselves. */
static void set_three_users(void)
{
	(void)!setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1);
}
static void set_two_groups(void)
{
	(void)!setregid((gid_t)-1, (gid_t)-1);
}
static void set_user_of_files(void)
{
	setfsuid(getuid());
}
static void set_groups_of_user(void)
{
	initgroups("nobody", 65534);
}
static void set_group(void)
{
	setpgrp();
}
static void set_limit(void)
{
	need(ulimit(UL_SETFSIZE, 1l << 40) >= 0, "ulimit");
}
static void set_scheduling(void)
{
	struct sched_param with = {0};
	sched_setparam(0, &with);
}
static void set_processors(void)
{
	cpu_set_t set;
	need(pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0 &&
	         pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0,
	     "pthread_setaffinity_np");
}
static void *set_of_a_thread(void *nothing)
{
	struct sched_param with = {0};
	need(sched_setparam(0, &with) == 0 && pthread_setschedparam(pthread_self(), SCHED_BATCH, &with) == 0,
	     "pthread_setschedparam");
	set_processors();
	return nothing;
}
static void set_in_a_thread(void)
{
	pthread_t thread;
	need(pthread_create(&thread, NULL, set_of_a_thread, NULL) == 0 && pthread_join(thread, NULL) == 0,
	     "pthread_create");
}
static void set_keys(void)
{
	(void)!pkey_alloc(0, 0);
}
static void ignore_children(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
	sigaction(SIGCHLD, &action, NULL);
}
static void block_in_handler(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigfillset(&action.sa_mask);
	sigaction(SIGCHLD, &action, NULL);
}

const struct attack attacks_of_process[] = {
    {"timer_create", set_timer, REWIND_PROCESS},
    {"timer_delete", set_timer_and_delete, REWIND_SURE},
    {"sigaltstack", set_signal_stack, REWIND_SURE},
    {"mlockall", lock_all, REWIND_PROCESS},
#ifdef __x86_64__
    {"x87", fill_x87, REWIND_SURE},
#endif
    {"setresuid", set_three_users, REWIND_PROCESS},
    {"setregid", set_two_groups, REWIND_PROCESS},
    {"setfsuid", set_user_of_files, REWIND_PROCESS},
    {"initgroups", set_groups_of_user, REWIND_PROCESS},
    {"setpgrp", set_group, REWIND_PROCESS},
    {"ulimit", set_limit, REWIND_PROCESS},
    {"sched_setparam", set_scheduling, REWIND_PROCESS},
    {"pthread_setaffinity_np", set_processors, REWIND_PROCESS},
    {"pthread_setschedparam of a thread", set_in_a_thread, REWIND_SURE},
    {"pkey_alloc", set_keys, REWIND_PROCESS},
    {"SA_NOCLDWAIT", ignore_children, REWIND_SURE},
    {"sa_mask", block_in_handler, REWIND_SURE},
    {0},
};
