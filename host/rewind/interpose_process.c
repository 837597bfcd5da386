/*
 * The process itself: signals, timers, threads, libraries, priority, limits, session, user.
 */
#include "interpose.h"

#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <termios.h>
#include <time.h>
#include <ulimit.h>
#include <unistd.h>

/* libc's own, looked up once, before the point. */
static int (*libc_sigaction)(int, const struct sigaction *, struct sigaction *);
static sighandler_t (*libc_signal)(int, sighandler_t), (*libc_sysv_signal)(int, sighandler_t),
    (*libc_sigset)(int, sighandler_t);
static int (*libc_sigignore)(int), (*libc_siginterrupt)(int, int);
static int (*libc_sigprocmask)(int, const sigset_t *, sigset_t *);
static int (*libc_pthread_sigmask)(int, const sigset_t *, sigset_t *);
static int (*libc_sigblock)(int), (*libc_sigsetmask)(int), (*libc_sighold)(int), (*libc_sigrelse)(int);
static useconds_t (*libc_ualarm)(useconds_t, useconds_t);
static int (*libc_pthread_setname_np)(pthread_t, const char *);
static int (*libc_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static int (*libc_timer_create)(clockid_t, struct sigevent *, timer_t *);
static int (*libc_timer_delete)(timer_t);
static long (*libc_ulimit)(int, ...);
static int (*libc_pthread_setaffinity_np)(pthread_t, size_t, const cpu_set_t *);
static int (*libc_pthread_setschedparam)(pthread_t, int, const struct sched_param *);
static int (*libc_pthread_setschedprio)(pthread_t, int);

/* Access to ports, which only x86 has. */
#ifdef __x86_64__
#include <sys/io.h>
#define EACH_OF_PORTS(X)                                                                                               \
	X(int, iopl, (int level), (level))                                                                                 \
	X(int, ioperm, (unsigned long from, unsigned long count, int on), (from, count, on))
#else
#define EACH_OF_PORTS(X)
#endif

/* Functions of libc's that change what a process is, and that call none of those which the host has by themselves. */
#define EACH_BECOMING(X)                                                                                               \
	X(int, setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))                            \
	X(int, setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))                            \
	X(int, setreuid, (uid_t real, uid_t effective), (real, effective))                                                 \
	X(int, setregid, (gid_t real, gid_t effective), (real, effective))                                                 \
	X(int, setfsuid, (uid_t user), (user))                                                                             \
	X(int, setfsgid, (gid_t group), (group))                                                                           \
	X(int, initgroups, (const char *user, gid_t group), (user, group))                                                 \
	X(int, setpgrp, (void), ())                                                                                        \
	X(int, setns, (int fd, int type), (fd, type))                                                                      \
	X(int, chroot, (const char *path), (path))                                                                         \
	EACH_OF_PORTS(X)                                                                                                   \
	X(int, pkey_alloc, (unsigned flags, unsigned rights), (flags, rights))                                             \
	X(int, pkey_free, (int key), (key))                                                                                \
	X(int, pkey_set, (int key, unsigned rights), (key, rights))                                                        \
	X(int, setipv4sourcefilter,                                                                                        \
	  (int fd, struct in_addr of, struct in_addr group, uint32_t mode, uint32_t count, const struct in_addr *from),    \
	  (fd, of, group, mode, count, from))                                                                              \
	X(int, setsourcefilter,                                                                                            \
	  (int fd, uint32_t of, const struct sockaddr *group, socklen_t len, uint32_t mode, uint32_t count,                \
	   const struct sockaddr_storage *from),                                                                           \
	  (fd, of, group, len, mode, count, from))                                                                         \
	X(int, tcsetpgrp, (int fd, pid_t group), (fd, group))                                                              \
	X(int, tcflow, (int fd, int action), (fd, action))                                                                 \
	X(int, tcsendbreak, (int fd, int duration), (fd, duration))
#define DECLARE(type, name, parameters, arguments) static type(*libc_##name) parameters;
EACH_BECOMING(DECLARE)

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_sigaction = interpose_next("sigaction");
	*(void **)&libc_signal = interpose_next("signal");
	*(void **)&libc_sysv_signal = interpose_next("sysv_signal");
	*(void **)&libc_sigset = interpose_next("sigset");
	*(void **)&libc_sigignore = interpose_next("sigignore");
	*(void **)&libc_siginterrupt = interpose_next("siginterrupt");
	*(void **)&libc_sigprocmask = interpose_next("sigprocmask");
	*(void **)&libc_pthread_sigmask = interpose_next("pthread_sigmask");
	*(void **)&libc_sigblock = interpose_next("sigblock");
	*(void **)&libc_sigsetmask = interpose_next("sigsetmask");
	*(void **)&libc_sighold = interpose_next("sighold");
	*(void **)&libc_sigrelse = interpose_next("sigrelse");
	*(void **)&libc_ualarm = interpose_next("ualarm");
	*(void **)&libc_pthread_setname_np = interpose_next("pthread_setname_np");
	*(void **)&libc_pthread_create = interpose_next("pthread_create");
	*(void **)&libc_timer_create = interpose_next("timer_create");
	*(void **)&libc_timer_delete = interpose_next("timer_delete");
	*(void **)&libc_ulimit = interpose_next("ulimit");
	*(void **)&libc_pthread_setaffinity_np = interpose_next("pthread_setaffinity_np");
	*(void **)&libc_pthread_setschedparam = interpose_next("pthread_setschedparam");
	*(void **)&libc_pthread_setschedprio = interpose_next("pthread_setschedprio");
#define LOOK_UP(type, name, parameters, arguments) *(void **)&libc_##name = interpose_next(#name);
	EACH_BECOMING(LOOK_UP)
}

/* Signals, timers, threads, priorities. */

void (*rewind_timer_taken)(bool by_handler);

/* What the kernel adds to the flags for libc: SA_RESTORER of the kernel's headers. */
#define RESTORER 0x04000000ul

/* `action` is the one that is set, NULL: nobody knows what is changed. */
static void changing(int signal, const struct sigaction *action)
{
	struct control *c = watching();
	if (c != NULL && signal >= 1 && signal <= MAX_SIGNALS) {
		const struct kernel_sigaction *boot = &c->actions[signal];
		uint64_t mask = 0;
		if (action != NULL) {
			memcpy(&mask, &action->sa_mask, sizeof mask);
		}
		/* PHP sets the handler of its timeout anew for each request. */
		if (action == NULL || boot->handler != (const void *)action->sa_handler || boot->mask != mask ||
		    (boot->flags & ~RESTORER) != ((unsigned long)(unsigned)action->sa_flags & ~RESTORER)) {
			c->actions_changed |= 1ull << (signal - 1);
		}
	}
	if (signal == SIGPROF && rewind_timer_taken != NULL) {
		rewind_timer_taken(true);
	}
}

EXPORT int sigaction(int signal, const struct sigaction *restrict action, struct sigaction *restrict old)
{
	if (action != NULL) {
		changing(signal, action);
	}
	int result = libc_sigaction(signal, action, old);
	const struct kernel_sigaction *behind =
	    result == 0 && old != NULL ? signals_behind(signal, (const void *)old->sa_handler) : NULL;
	if (behind != NULL) {
		*(void **)&old->sa_handler = behind->handler;
		old->sa_flags = (old->sa_flags & ~SA_SIGINFO) | (int)(behind->flags & SA_SIGINFO);
	}
	return result;
}

/* The handler that was there before. */
static sighandler_t before(int signal, sighandler_t handler)
{
	const struct kernel_sigaction *behind = signals_behind(signal, (const void *)handler);
	return behind != NULL ? (sighandler_t)behind->handler : handler;
}

EXPORT sighandler_t signal(int signal, sighandler_t handler)
{
	/* As libc does it, but for signals that siginterrupt(3) has named, which are put back. */
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaddset(&action.sa_mask, signal);
	changing(signal, &action);
	return before(signal, libc_signal(signal, handler));
}

/* Its other names, and the functions by which libc sets handlers without calling any of these. */
EXPORT sighandler_t ssignal(int number, sighandler_t handler)
{
	return signal(number, handler);
}

EXPORT sighandler_t bsd_signal(int number, sighandler_t handler)
{
	return signal(number, handler);
}

int __sigaction(int signal, const struct sigaction *restrict action, struct sigaction *restrict old);
EXPORT int __sigaction(int signal, const struct sigaction *restrict action, struct sigaction *restrict old)
{
	return sigaction(signal, action, old);
}

EXPORT sighandler_t sysv_signal(int signal, sighandler_t handler)
{
	changing(signal, NULL);
	return before(signal, libc_sysv_signal(signal, handler));
}

EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler)
{
	return sysv_signal(number, handler);
}

EXPORT sighandler_t sigset(int signal, sighandler_t disposition)
{
	changing(signal, NULL);
	return before(signal, libc_sigset(signal, disposition));
}

EXPORT int sigignore(int signal)
{
	changing(signal, NULL);
	return libc_sigignore(signal);
}

EXPORT int siginterrupt(int signal, int interrupts)
{
	changing(signal, NULL);
	return libc_siginterrupt(signal, interrupts);
}

/* The mask, by all names that change it and that libc's functions do not use themselves. */

static void changing_mask(void)
{
	struct control *c = watching();
	if (c != NULL) {
		c->mask_changed = true;
	}
}

EXPORT int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	if (set != NULL) {
		changing_mask();
	}
	return libc_sigprocmask(how, set, old);
}

EXPORT int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	if (set != NULL) {
		changing_mask();
	}
	return libc_pthread_sigmask(how, set, old);
}

EXPORT int sigblock(int mask)
{
	changing_mask();
	return libc_sigblock(mask);
}

EXPORT int sigsetmask(int mask)
{
	changing_mask();
	return libc_sigsetmask(mask);
}

EXPORT int sighold(int signal)
{
	changing_mask();
	return libc_sighold(signal);
}

EXPORT int sigrelse(int signal)
{
	changing_mask();
	return libc_sigrelse(signal);
}

EXPORT int setitimer(__itimer_which_t which, const struct itimerval *restrict value, struct itimerval *restrict old)
{
	struct control *c = watching();
	if (c != NULL) {
		bool set = value != NULL && (value->it_value.tv_sec != 0 || value->it_value.tv_usec != 0);
		uint8_t bit = (uint8_t)(1u << which);
		c->timers_set = set ? c->timers_set | bit : (uint8_t)(c->timers_set & ~bit);
	}
	if (which == ITIMER_PROF && rewind_timer_taken != NULL) {
		rewind_timer_taken(false);
	}
	return (int)syscall(SYS_setitimer, which, value, old);
}

void rewind_set_timer(int which, const struct itimerval *value)
{
	SYS3(SYS_setitimer, which, value, NULL);
}

/* Not every processor's kernel has alarm(2); this rounds as it does. */
EXPORT unsigned alarm(unsigned seconds)
{
	const struct itimerval value = {.it_value.tv_sec = seconds};
	struct itimerval before = {0};
	setitimer(ITIMER_REAL, &value, &before);
	const struct timeval *left = &before.it_value;
	bool up = left->tv_usec >= 500000 || (left->tv_sec == 0 && left->tv_usec > 0);
	return (unsigned)left->tv_sec + up;
}

EXPORT useconds_t ualarm(useconds_t value, useconds_t interval)
{
	struct control *c = watching();
	if (c != NULL) {
		c->timers_set |= 1u << ITIMER_REAL;
	}
	return libc_ualarm(value, interval);
}

/* A timer of its own that a request leaves would strike the next one. */
EXPORT int timer_create(clockid_t clock, struct sigevent *restrict event, timer_t *restrict timer)
{
	struct control *c = watching();
	int result = libc_timer_create(clock, event, timer);
	if (c != NULL && result == 0) {
		c->timers_made++;
	}
	return result;
}

EXPORT int timer_delete(timer_t timer)
{
	struct control *c = watching();
	int result = libc_timer_delete(timer);
	if (c != NULL && result == 0) {
		c->timers_made--;
	}
	return result;
}

EXPORT int sigaltstack(const stack_t *restrict stack, stack_t *restrict before)
{
	struct control *c = watching();
	if (c != NULL && stack != NULL) {
		c->signal_stack_changed = true;
	}
	return (int)syscall(SYS_sigaltstack, stack, before);
}

EXPORT int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *),
                          void *restrict with)
{
	struct control *c = watching();
	if (c != NULL) {
		c->threads_started = true;
	}
	return libc_pthread_create(thread, attributes, run, with);
}

/* What a process is: priority, limits, session, user. Most of it has no way back. */

static void becoming(void)
{
	struct control *c = watching();
	if (c != NULL) {
		c->doubt = REWIND_PROCESS;
	}
}

#define BECOME(type, name, parameters, arguments)                                                                      \
	EXPORT type name parameters                                                                                        \
	{                                                                                                                  \
		becoming();                                                                                                    \
		return libc_##name arguments;                                                                                  \
	}
EACH_BECOMING(BECOME)

/* It takes what it sets as a number of any size. */
EXPORT long ulimit(int command, ...)
{
	va_list rest;
	va_start(rest, command);
	long limit = va_arg(rest, long);
	va_end(rest);
	if (command == UL_SETFSIZE) {
		becoming();
	}
	return libc_ulimit(command, limit);
}

EXPORT int prctl(int option, ...)
{
	va_list rest;
	va_start(rest, option);
	unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long), d = va_arg(rest, unsigned long),
	              e = va_arg(rest, unsigned long);
	va_end(rest);
	struct control *c = watching();
	switch (option) {
	case PR_SET_NAME:
		if (c != NULL) {
			c->name_changed = true;
		}
		break;
	case PR_SET_TIMERSLACK:
		if (c != NULL) {
			c->slack_changed = true;
		}
		break;
	case PR_SET_PDEATHSIG:
		if (a != SIGKILL) { /* as it is anyway */
			becoming();
		}
		break;
	case PR_GET_NAME:
	case PR_GET_TIMERSLACK:
	case PR_GET_DUMPABLE:
	case PR_GET_PDEATHSIG:
	case PR_GET_SECCOMP:
	case PR_GET_NO_NEW_PRIVS:
	case PR_GET_THP_DISABLE:
	case PR_GET_KEEPCAPS:
	case PR_GET_SECUREBITS:
	case PR_GET_CHILD_SUBREAPER:
	case PR_GET_TID_ADDRESS:
	case PR_CAPBSET_READ:
	case PR_SET_VMA: /* names of mappings */
		break;
	default:
		becoming();
	}
	return (int)syscall(SYS_prctl, option, a, b, d, e);
}

EXPORT int pthread_setname_np(pthread_t thread, const char *name)
{
	struct control *c = watching();
	if (c != NULL) {
		c->name_changed = true;
	}
	return libc_pthread_setname_np(thread, name);
}

/* What a thread sets of itself ends with it, and one that has not ended is found by itself: of libzmq's each sets its
 * policy. What goes on is the first thread. */
static void becoming_of(bool itself)
{
	if (!itself || gettid() == getpid()) {
		becoming();
	}
}

/* What only this process may do to itself is done to process 0: the filter of system calls lets nothing else pass
 * (../seccomp.c). */
static pid_t or_itself(pid_t process)
{
	return process == getpid() || process == gettid() ? 0 : process;
}

EXPORT int sched_setaffinity(pid_t process, size_t size, const cpu_set_t *set)
{
	becoming_of(process == 0 || process == gettid());
	return (int)syscall(SYS_sched_setaffinity, or_itself(process), size, set);
}

EXPORT int sched_setscheduler(pid_t process, int policy, const struct sched_param *param)
{
	becoming_of(process == 0 || process == gettid());
	return (int)syscall(SYS_sched_setscheduler, or_itself(process), policy, param);
}

EXPORT int sched_setparam(pid_t process, const struct sched_param *param)
{
	becoming_of(process == 0 || process == gettid());
	return (int)syscall(SYS_sched_setparam, or_itself(process), param);
}

/* As functions of pthread have it: 0, or the number of the error. */
static int error_of(long result, int before)
{
	int error = result == 0 ? 0 : errno;
	errno = before;
	return error;
}

/* libc's name the thread by its number, which the filter does not let pass. */
EXPORT int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
	becoming_of(pthread_equal(thread, pthread_self()));
	int before = errno;
	return pthread_equal(thread, pthread_self()) ? error_of(syscall(SYS_sched_setaffinity, 0, size, set), before)
	                                             : libc_pthread_setaffinity_np(thread, size, set);
}

EXPORT int pthread_setschedparam(pthread_t thread, int policy, const struct sched_param *with)
{
	becoming_of(pthread_equal(thread, pthread_self()));
	int before = errno;
	return pthread_equal(thread, pthread_self()) ? error_of(syscall(SYS_sched_setscheduler, 0, policy, with), before)
	                                             : libc_pthread_setschedparam(thread, policy, with);
}

EXPORT int pthread_setschedprio(pthread_t thread, int priority)
{
	becoming_of(pthread_equal(thread, pthread_self()));
	int before = errno;
	struct sched_param with = {.sched_priority = priority};
	return pthread_equal(thread, pthread_self()) ? error_of(syscall(SYS_sched_setparam, 0, &with), before)
	                                             : libc_pthread_setschedprio(thread, priority);
}

/* glibc 2.41 has it, and declares it with a structure that those before it do not know. */
EXPORT int set_sched_attributes(pid_t process, const void *to, unsigned flags) __asm__("sched_setattr");
int set_sched_attributes(pid_t process, const void *to, unsigned flags)
{
	becoming_of(process == 0 || process == gettid());
	return (int)syscall(SYS_sched_setattr, or_itself(process), to, flags);
}

EXPORT int prlimit(pid_t process, __rlimit_resource_t resource, const struct rlimit *limits, struct rlimit *before)
{
	if (limits != NULL) {
		becoming();
	}
	return (int)syscall(SYS_prlimit64, or_itself(process), resource, limits, before);
}
EXPORT int prlimit64(pid_t process, __rlimit_resource_t resource, const struct rlimit64 *limits,
                     struct rlimit64 *before)
{
	return prlimit(process, resource, (const struct rlimit *)limits, (struct rlimit *)before);
}

EXPORT int personality(unsigned long persona)
{
	if (persona != 0xffffffff) {
		becoming();
	}
	return (int)syscall(SYS_personality, persona);
}

#ifdef __x86_64__
/* Segment registers. Newer than some headers: 0x1003 and 0x1004 read them. */
int arch_prctl(int what, unsigned long with);
EXPORT int arch_prctl(int what, unsigned long with)
{
	if (what != 0x1003 && what != 0x1004) {
		becoming();
	}
	return (int)syscall(SYS_arch_prctl, what, with);
}
#endif

EXPORT int mlockall(int flags)
{
	becoming();
	return (int)syscall(SYS_mlockall, flags);
}

EXPORT int unshare(int what)
{
	becoming();
	return (int)syscall(SYS_unshare, what);
}

EXPORT int setpriority(__priority_which_t which, id_t who, int priority)
{
	becoming();
	return (int)syscall(SYS_setpriority, which, which == PRIO_PROCESS ? (id_t)or_itself((pid_t)who) : who, priority);
}

EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limits)
{
	becoming();
	return (int)syscall(SYS_prlimit64, 0, resource, limits, NULL);
}
EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limits)
{
	becoming();
	return (int)syscall(SYS_prlimit64, 0, resource, limits, NULL);
}

EXPORT int setpgid(pid_t process, pid_t group)
{
	becoming();
	return (int)syscall(SYS_setpgid, process, group);
}

EXPORT pid_t setsid(void)
{
	becoming();
	return (pid_t)syscall(SYS_setsid);
}

EXPORT int setuid(uid_t user)
{
	becoming();
	return (int)syscall(SYS_setuid, user);
}

EXPORT int seteuid(uid_t user)
{
	becoming();
	return (int)syscall(SYS_setresuid, -1, user, -1);
}

EXPORT int setgid(gid_t group)
{
	becoming();
	return (int)syscall(SYS_setgid, group);
}

EXPORT int setegid(gid_t group)
{
	becoming();
	return (int)syscall(SYS_setresgid, -1, group, -1);
}

EXPORT int setgroups(size_t count, const gid_t *groups)
{
	becoming();
	return (int)syscall(SYS_setgroups, count, groups);
}

EXPORT int nice(int by)
{
	int now = getpriority(PRIO_PROCESS, 0);
	return setpriority(PRIO_PROCESS, 0, now + by) == 0 ? getpriority(PRIO_PROCESS, 0) : -1;
}
