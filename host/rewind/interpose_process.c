/*
 * The process itself: signals, timers, threads, libraries, priority, limits, session, user.
 */
#include "interpose.h"

#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

/* libc's own, looked up once, before the point. */
static int (*libc_sigaction)(int, const struct sigaction *, struct sigaction *);
static sighandler_t (*libc_signal)(int, sighandler_t);
static void *(*libc_dlopen)(const char *, int);
static int (*libc_pthread_setname_np)(pthread_t, const char *);
static int (*libc_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_sigaction = interpose_next("sigaction");
	*(void **)&libc_signal = interpose_next("signal");
	*(void **)&libc_dlopen = interpose_next("dlopen");
	*(void **)&libc_pthread_setname_np = interpose_next("pthread_setname_np");
	*(void **)&libc_pthread_create = interpose_next("pthread_create");
}

/* Signals, timers, threads, priorities. */

static void changing(int signal, const void *handler)
{
	struct control *c = watching();
	/* PHP sets the handler of its timeout anew for each request. */
	if (c != NULL && signal >= 1 && signal <= MAX_SIGNALS && c->actions[signal].handler != handler) {
		c->actions_changed |= 1ull << (signal - 1);
	}
}

EXPORT int sigaction(int signal, const struct sigaction *restrict action, struct sigaction *restrict old)
{
	if (action != NULL) {
		changing(signal, (const void *)action->sa_handler);
	}
	return libc_sigaction(signal, action, old);
}

EXPORT sighandler_t signal(int signal, sighandler_t handler)
{
	changing(signal, (const void *)handler);
	return libc_signal(signal, handler);
}

EXPORT int setitimer(__itimer_which_t which, const struct itimerval *restrict value, struct itimerval *restrict old)
{
	struct control *c = watching();
	if (c != NULL) {
		bool set = value->it_value.tv_sec != 0 || value->it_value.tv_usec != 0;
		uint8_t bit = (uint8_t)(1u << which);
		c->timers_set = set ? c->timers_set | bit : (uint8_t)(c->timers_set & ~bit);
	}
	return (int)syscall(SYS_setitimer, which, value, old);
}

EXPORT unsigned alarm(unsigned seconds)
{
	struct control *c = watching();
	if (c != NULL && seconds != 0) {
		c->timers_set |= 1u << ITIMER_REAL;
	}
	return (unsigned)syscall(SYS_alarm, seconds);
}

/*
 * PHP loads extensions so that they and their libraries (libcurl, libpq) find libc's functions before those above. That
 * protects them from names that a web server happens to have; this process has none of its own to offer but these.
 */
EXPORT void *dlopen(const char *path, int mode)
{
	return libc_dlopen(path, rewind_control == NULL ? mode : mode & ~RTLD_DEEPBIND);
}

static bool is_of_libc(const void *at)
{
	static const void *base;
	Dl_info info;
	if (base == NULL && dladdr(*(void **)&libc_dlopen, &info) != 0) {
		base = info.dli_fbase;
	}
	return base != NULL && dladdr(at, &info) != 0 && info.dli_fbase == base;
}

static bool is_of_executable(const void *at)
{
	extern const char __executable_start, _end;
	return (const char *)at >= &__executable_start && (const char *)at < &_end;
}

/* Who asks a library by its name, as FFI::cdef(…, 'libc.so.6') does, would go past the functions of this executable as
 * well. Whose next one RTLD_NEXT is, libc tells by who has called: so this must be the last thing here, a jump. */
EXPORT void *dlsym(void *restrict library, const char *restrict name)
{
	static void *(*libc_dlsym)(void *, const char *);
	if (libc_dlsym == NULL) {
		void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
		*(void **)&libc_dlsym = found != NULL ? found : dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
		if (libc_dlsym == NULL) {
			abort(); /* libc without one of its own functions */
		}
	}
	if (library != RTLD_NEXT && library != RTLD_DEFAULT) {
		void *found = libc_dlsym(library, name);
		if (found == NULL || !is_of_libc(found)) {
			return found; /* and what dlerror() has to say */
		}
		void *own = libc_dlsym(RTLD_DEFAULT, name);
		return own != NULL && is_of_executable(own) ? own : found;
	}
	return libc_dlsym(library, name);
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

EXPORT int sched_setaffinity(pid_t process, size_t size, const cpu_set_t *set)
{
	becoming();
	return (int)syscall(SYS_sched_setaffinity, process, size, set);
}

EXPORT int sched_setscheduler(pid_t process, int policy, const struct sched_param *param)
{
	becoming();
	return (int)syscall(SYS_sched_setscheduler, process, policy, param);
}

EXPORT int prlimit(pid_t process, __rlimit_resource_t resource, const struct rlimit *limits, struct rlimit *before)
{
	if (limits != NULL) {
		becoming();
	}
	return (int)syscall(SYS_prlimit64, process, resource, limits, before);
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

EXPORT int unshare(int what)
{
	becoming();
	return (int)syscall(SYS_unshare, what);
}

EXPORT int setpriority(__priority_which_t which, id_t who, int priority)
{
	becoming();
	return (int)syscall(SYS_setpriority, which, who, priority);
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
