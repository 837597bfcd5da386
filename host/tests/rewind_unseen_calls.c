/*
 * Attacks by system calls' numbers, and by other names and versions of libc's functions.
 */
#include "rewind_unseen.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void ask_by_number(void)
{
	need(syscall(SYS_getpid) == getpid() && syscall(SYS_kill, -1, 1000) == -1 && errno == EINVAL, "syscall");
}
static void map_by_number(void)
{
	uint8_t *at =
	    (uint8_t *)syscall(SYS_mmap, NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(at != MAP_FAILED, "mmap");
	at[PAGE] = 1;
}
static void unmap_by_number(void)
{
	syscall(SYS_munmap, area, PAGE);
}
static void protect_by_number(void)
{
	syscall(SYS_mprotect, area, PAGE, PROT_READ);
}
static void discard_by_number(void)
{
	syscall(SYS_madvise, area, PAGE, MADV_DONTNEED);
}
static void lower_break_by_number(void)
{
	syscall(SYS_brk, (uint8_t *)sbrk(0) - PAGE);
}
static void close_by_number(void)
{
	syscall(SYS_close, file);
}
static void fork_by_number(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		_exit(0);
	}
	need(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
}
static void watch_by_number(void)
{
	syscall(SYS_userfaultfd, O_CLOEXEC);
}
/* What libc's first functions for this processor are marked with. */
#ifdef __x86_64__
#define OLDEST_LIBC "GLIBC_2.2.5"
#else
#define OLDEST_LIBC "GLIBC_2.17"
#endif
static void unmap_by_version(void)
{
	int (*found)(void *, size_t);
	*(void **)&found = dlvsym(RTLD_DEFAULT, "munmap", OLDEST_LIBC);
	need(found != NULL && found(area, PAGE) == 0, "munmap by its version");
	*(void **)&found = dlvsym(dlopen("libc.so.6", RTLD_LAZY), "munmap", OLDEST_LIBC);
	need(found != NULL && found(area, PAGE) == 0, "munmap by its version");
	*(void **)&found = dlsym(dlopen("libc.so.6", RTLD_LAZY), "munmap");
	need(found != NULL && found(area, PAGE) == 0, "munmap by its name");
	if (dlvsym(RTLD_DEFAULT, "munmap", "GLIBC_1.0") != NULL || dlsym(RTLD_DEFAULT, "no such function") != NULL) {
		wrong("what does not exist was found");
	}
}

const struct attack attacks_by_number[] = {
    {"syscall getpid", ask_by_number, REWIND_SURE},
    {"syscall mmap", map_by_number, REWIND_SURE},
    {"syscall munmap", unmap_by_number, REWIND_PROCESS},
    {"syscall mprotect", protect_by_number, REWIND_PROCESS},
    {"syscall madvise", discard_by_number, REWIND_PROCESS},
    {"syscall brk", lower_break_by_number, REWIND_PROCESS},
    {"syscall close", close_by_number, REWIND_PROCESS},
    {"syscall fork", fork_by_number, REWIND_PROCESS},
    {"syscall userfaultfd", watch_by_number, REWIND_PROCESS},
    {"dlvsym", unmap_by_version, REWIND_SURE},
    {0},
};
