/*
 * What keeps PHP's processes apart: from the front, from other applications, and from each other, also where all run as
 * one user.
 *
 *  - Not dumpable: no process of the same user may trace them or open their files in /proc (memory, environment,
 *    descriptors). What a script could set of itself through /proc/self (mem, oom_score_adj, comm) is closed as well.
 *  - A Landlock domain of the application's, and one of each worker's within it (Linux 6.12): no signal leaves it, and
 *    nothing outside can be traced or looked into. Files and sockets are left alone. It needs no_new_privs.
 *  - What the kernel allows by the user alone (limits, priority, processors) is forbidden by seccomp.c.
 *  - Killed before the front when memory runs out: a worker first, then a zygote, whose death costs all its workers.
 *
 * Once set, none of this can be taken back by PHP code. It must never be applied to `hayate explain`, which looks into
 * the memory of the worker that it runs.
 */
#include "host.h"
#include "explain.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Added to what the front has; proc(5), /proc/PID/oom_score_adj: -1000 to 1000. */
#define OOM_ZYGOTE 200
#define OOM_WORKER 100
#define OOM_MOST 1000

/* Newer than Debian 12's kernel headers; the values are the kernel's interface and do not change. */
#define HY_LANDLOCK_CREATE_RULESET 444
#define HY_LANDLOCK_RESTRICT_SELF 446
#define HY_LANDLOCK_VERSION (1u << 0)
#define HY_LANDLOCK_SCOPE_SIGNAL (1ull << 1)
#define HY_LANDLOCK_SCOPES 6 /* the first version that has them */
struct hy_landlock_ruleset {
	uint64_t handled_access_fs, handled_access_net, scoped;
};

static void die_sooner(int by)
{
	char text[16];
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n > 0) {
		text[n] = '\0';
		int score = atoi(text) + by;
		int len = snprintf(text, sizeof text, "%d", score < OOM_MOST ? score : OOM_MOST);
		/* It may always be raised. Without /proc there is nothing to set. */
		n = pwrite(fd, text, (size_t)len, 0);
	}
	if (fd >= 0) {
		close(fd);
	}
}

int isolation_landlock(void)
{
	return (int)syscall(HY_LANDLOCK_CREATE_RULESET, NULL, 0, HY_LANDLOCK_VERSION);
}

static void enter_domain(void)
{
	if (!options.no_new_privileges || isolation_landlock() < HY_LANDLOCK_SCOPES) {
		return;
	}
	struct hy_landlock_ruleset rules = {.scoped = HY_LANDLOCK_SCOPE_SIGNAL};
	int fd = (int)syscall(HY_LANDLOCK_CREATE_RULESET, &rules, sizeof rules, 0);
	/* It fails within 16 domains of others. What is not dumpable and other users' remains protected. */
	if (fd < 0 || syscall(HY_LANDLOCK_RESTRICT_SELF, fd, 0) != 0) {
		log_format("Landlock refuses (%s): scripts may signal other processes of their user.", strerror(errno));
	}
	if (fd >= 0) {
		close(fd);
	}
}

void isolation_zygote(void)
{
	if (explain_file == NULL) {
		die_sooner(OOM_ZYGOTE);
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		enter_domain();
		if (options.no_new_privileges) {
			seccomp_forbid();
		}
	}
}

void isolation_worker(uint32_t number)
{
	int memory = -1;
	if (explain_file == NULL) {
		/* A process that is not dumpable does not own its files in /proc. */
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		die_sooner(OOM_WORKER);
		memory = trace_open(number);
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	}
	trace_hand_over(number, memory);
	if (explain_file == NULL) {
		enter_domain();
	}
}
