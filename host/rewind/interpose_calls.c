/*
 * System calls by their number: syscall(2), as FFI and libraries call it for what libc has no function for, and
 * functions of libc by which a child shares this process's memory.
 *
 * What such a call does is not taken back one by one, as by the functions of interpose_*.c. So either it is known to
 * leave nothing behind in this process, or it costs the worker. Not seen is who makes system calls without libc, by an
 * instruction of its own.
 */
#include "interpose.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* Not in all headers yet. */
#define HY_SYS_FACCESSAT2 439

static int (*libc_clone)(void);
static int (*libc_vfork)(void);
static FILE *(*libc_popen)(const char *, const char *);
static FILE *(*libc_proc_open)(FILE *, const char *, const char *);
typedef int spawn(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                  char *const[]);
/* The last two are NULL before glibc 2.39. */
static spawn *libc_posix_spawn, *libc_posix_spawnp, *libc_pidfd_spawn, *libc_pidfd_spawnp;

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_clone = interpose_next("clone");
	*(void **)&libc_vfork = interpose_next("vfork");
	*(void **)&libc_popen = interpose_next("popen");
	*(void **)&libc_proc_open = interpose_next("_IO_proc_open");
	*(void **)&libc_posix_spawn = interpose_next("posix_spawn");
	*(void **)&libc_posix_spawnp = interpose_next("posix_spawnp");
	*(void **)&libc_pidfd_spawn = dlsym(RTLD_NEXT, "pidfd_spawn");
	*(void **)&libc_pidfd_spawnp = dlsym(RTLD_NEXT, "pidfd_spawnp");
}

/* Asks the kernel, makes a descriptor (a rewind closes it), or changes only what lies outside the process. */
static bool leaves_nothing(long number)
{
	switch (number) {
	case SYS_getpid:
	case SYS_gettid:
	case SYS_getppid:
	case SYS_getuid:
	case SYS_geteuid:
	case SYS_getgid:
	case SYS_getegid:
	case SYS_getgroups:
	case SYS_getresuid:
	case SYS_getresgid:
	case SYS_getpgid:
	case SYS_getsid:
	case SYS_getpriority:
	case SYS_getrandom:
	case SYS_getcpu:
	case SYS_getrusage:
	case SYS_getrlimit:
	case SYS_getitimer:
	case SYS_get_mempolicy:
	case SYS_capget:
	case SYS_sched_getaffinity:
	case SYS_sched_getparam:
	case SYS_sched_getscheduler:
	case SYS_sched_getattr:
	case SYS_sched_get_priority_max:
	case SYS_sched_get_priority_min:
	case SYS_sched_yield:
	case SYS_sysinfo:
	case SYS_uname:
	case SYS_times:
	case SYS_gettimeofday:
	case SYS_clock_gettime:
	case SYS_clock_getres:
	case SYS_clock_nanosleep:
	case SYS_nanosleep:
	case SYS_futex:
	case SYS_kcmp:
	case SYS_kill:
	case SYS_tkill:
	case SYS_tgkill:
	case SYS_pidfd_open:
	case SYS_pidfd_send_signal:
	case SYS_memfd_create:
	case SYS_eventfd2:
	case SYS_timerfd_create:
	case SYS_epoll_create1:
	case SYS_inotify_init1:
	case SYS_ppoll:
	case SYS_pselect6:
	case SYS_fstat:
	case SYS_newfstatat:
	case SYS_statx:
	case SYS_statfs:
	case SYS_fstatfs:
	case SYS_faccessat:
	case HY_SYS_FACCESSAT2:
	case SYS_readlinkat:
	case SYS_getcwd:
	case SYS_getdents64:
	case SYS_getxattr:
	case SYS_lgetxattr:
	case SYS_fgetxattr:
	case SYS_listxattr:
	case SYS_pread64:
	case SYS_lseek: /* put back */
	case SYS_fsync:
	case SYS_fdatasync:
	case SYS_mkdirat:
	case SYS_unlinkat:
	case SYS_linkat:
	case SYS_symlinkat:
	case SYS_renameat2:
	case SYS_fchmodat:
	case SYS_fchownat:
	case SYS_utimensat:
	case SYS_mincore:
	case SYS_msync:
	case SYS_add_key: /* keyrings are the kernel's, as a database is a server's */
	case SYS_request_key:
	case SYS_keyctl:
	case SYS_exit:
	case SYS_exit_group:
#ifdef __x86_64__ /* which has older forms of some of them */
	case SYS_getpgrp:
	case SYS_time:
	case SYS_poll:
	case SYS_select:
	case SYS_stat:
	case SYS_lstat:
	case SYS_access:
	case SYS_readlink:
#endif
		return true;
	default:
		return false;
	}
}

/* By its arguments it leaves nothing. */
static bool harmless(struct control *c, long number, long a, long b, long d, long e)
{
	switch (number) {
	case SYS_read:
	case SYS_write:
	case SYS_readv:
	case SYS_writev:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_close:
		return descriptor_of((int)a) == NULL;
	case SYS_pwrite64:
	case SYS_fallocate:
	case SYS_ftruncate:
		interpose_writing((int)a);
		return true;
#ifdef __x86_64__
	case SYS_open:
		return (b & O_ACCMODE) == O_RDONLY;
#endif
	case SYS_openat:
		return (d & O_ACCMODE) == O_RDONLY;
	case SYS_prctl:
		return a == PR_GET_NAME || a == PR_GET_DUMPABLE;
	case SYS_prlimit64:
		return d == 0;
	case SYS_mmap:
		c->must_sweep = true; /* it is found as a mapping that nobody declared */
		return !(e & MAP_FIXED);
	case SYS_munmap:
		c->must_sweep = true;
		return !memory_is_known((uintptr_t)a, (uintptr_t)a + (uintptr_t)b);
	default:
		return leaves_nothing(number);
	}
}

void interpose_note_call(long number, long a, long b, long d, long e)
{
	struct control *c = watching();
	if (c != NULL && !harmless(c, number, a, b, d, e)) {
		c->doubt = REWIND_PROCESS;
	}
}

long interpose_call_failed(long result)
{
	errno = (int)-result;
	return -1;
}

/* A child that shares the memory writes to it, and its page faults are its own: the next rewind must look, at the pages
 * and for the child. */
static void sharing_memory(void)
{
	struct control *c = watching();
	if (c != NULL) {
		c->faults = UINT64_MAX;
	}
}

void *interpose_libc_vfork(void)
{
	sharing_memory();
	return (void *)libc_vfork;
}

/* A child with a copy of the memory has all descriptors, and libc tells nobody of it, as it does of a fork(). */
void *interpose_libc_clone(int (*run)(void *), void *stack, int flags, void *with)
{
	struct control *c = watching();
	if (c != NULL && flags & CLONE_THREAD) {
		c->doubt = REWIND_THREADS;
	} else if (c != NULL && !(flags & CLONE_VM)) {
		c->doubt = REWIND_CHILD;
	}
	sharing_memory();
	return (void *)libc_clone;
}

/* libc's runs no handlers of pthread_atfork(), by which a child is told what it is. */
EXPORT pid_t _Fork(void)
{
	return fork();
}

/* libc's own ways to make such a child, without calling any of these. (Those that wait for it, as system(), leave
 * none.) */
EXPORT FILE *popen(const char *command, const char *mode)
{
	sharing_memory();
	return libc_popen(command, mode);
}

FILE *_IO_popen(const char *command, const char *mode);
EXPORT FILE *_IO_popen(const char *command, const char *mode)
{
	return popen(command, mode);
}

FILE *_IO_proc_open(FILE *file, const char *command, const char *mode);
EXPORT FILE *_IO_proc_open(FILE *file, const char *command, const char *mode)
{
	sharing_memory();
	return libc_proc_open(file, command, mode);
}

EXPORT int posix_spawn(pid_t *restrict child, const char *restrict path,
                       const posix_spawn_file_actions_t *restrict actions, const posix_spawnattr_t *restrict attributes,
                       char *const arguments[restrict], char *const environment[restrict])
{
	sharing_memory();
	return libc_posix_spawn(child, path, actions, attributes, arguments, environment);
}

EXPORT int posix_spawnp(pid_t *restrict child, const char *restrict file,
                        const posix_spawn_file_actions_t *restrict actions,
                        const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
                        char *const environment[restrict])
{
	sharing_memory();
	return libc_posix_spawnp(child, file, actions, attributes, arguments, environment);
}

spawn pidfd_spawn, pidfd_spawnp;
EXPORT int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
	sharing_memory();
	return libc_pidfd_spawn != NULL ? libc_pidfd_spawn(pidfd, path, actions, attributes, arguments, environment)
	                                : ENOSYS;
}

EXPORT int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
	sharing_memory();
	return libc_pidfd_spawnp != NULL ? libc_pidfd_spawnp(pidfd, file, actions, attributes, arguments, environment)
	                                 : ENOSYS;
}
