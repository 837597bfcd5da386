/*
 * A process for each request: `rewind = "fork"`, and what takes the place of rewinding where that is not possible. What
 * a request leaves behind ends with its process, but for what it told others.
 */
#include "host.h"
#include "explain.h"
#include "stray.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit status of such a process: its request is over; or this plus enum hy_retired. */
#define FORKED_SERVED 0
#define FORKED_RETIRED 100

static bool for_one_request;

bool fork_is_for_one_request(void)
{
	return for_one_request;
}

void fork_end(enum hy_retired why)
{
	if (why == HY_RETIRED_NOT) {
		explain_forked();
	}
	_exit(why == HY_RETIRED_NOT ? FORKED_SERVED : FORKED_RETIRED + (int)why);
}

void fork_be_silent(bool names_classes)
{
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int ours[] = {STDOUT_FILENO, STDERR_FILENO, HY_FD_CONTROL, HY_FD_CLASSES};
	for (size_t i = 0; i < sizeof ours / sizeof ours[0] - names_classes; i++) {
		dup3(nothing, ours[i], ours[i] > STDERR_FILENO ? O_CLOEXEC : 0);
	}
	close(nothing);
	explain_file = NULL;
}

/* In a process that handles one request. */
void fork_begin(void)
{
	for_one_request = true;
	const char *wrong = rewind_forked();
	if (wrong != NULL) {
		/* One that was replaced may be closed by now. */
		boot_files_look(BOOT_FILES_ALL);
		wrong = rewind_forked();
	}
	if (wrong != NULL) {
		log_format(HY_LOG_ERROR "%s, and requests must not share a position in it", wrong);
		_exit(70);
	}
	opcache_after_fork();
	randomness_seed();
}

enum hy_retired fork_cost(int status)
{
	static const enum hy_retired costs[] = {HY_RETIRED_REWIND_CONNECTION, HY_RETIRED_REWIND_DESCRIPTORS};
	for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
		if (WIFEXITED(status) && WEXITSTATUS(status) == FORKED_RETIRED + (int)costs[i]) {
			return costs[i];
		}
	}
	return HY_RETIRED_NOT;
}

/* The process that has the present request, in its parent. */
static volatile pid_t serves;

bool fork_end_request(uint32_t ticket)
{
	pid_t child = serves;
	if (child > 0) {
		time_limit_end_request(child, ticket);
	}
	return child > 0;
}

/*
 * A fork for each request; the next one waits already while the answer of the last one is on its way. Returns true in
 * the child, and false when this worker has to leave.
 */
static bool fork_next(void)
{
	pid_t parent = getpid();
	rewind_hear_children();
	for (;;) {
		if (worker_after_request() != HY_RETIRED_NOT) {
			return false;
		}
		clocks_between_requests();
		boot_files_follow();
		pid_t pid = host_fork();
		serves = pid;
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
			if (getppid() != parent) {
				_exit(FORKED_SERVED);
			}
			rewind_leave_children();
			fork_begin();
			return true;
		}
		int status = 0;
		pid_t waited = pid;
		do {
			waited = pid < 0 ? -1 : waitpid(pid, &status, 0);
		} while (waited < 0 && pid > 0 && errno == EINTR);
		serves = 0;
		if (waited != pid || pid < 0) {
			log_format(HY_LOG_ERROR
			           "A process for the next request could not be forked: %s; raise the limit of processes or "
			           "of memory, or lower workers",
			           strerror(errno));
			_exit(70);
		}
		rewind_child_over();
		boot_files_settle();
		if (WIFSIGNALED(status)) {
			/* What killed it is what the pool has to hear of. */
			signal(WTERMSIG(status), SIG_DFL);
			kill(parent, WTERMSIG(status));
		}
		if (!WIFEXITED(status) || WEXITSTATUS(status) != FORKED_SERVED) {
			int code = WIFEXITED(status) ? WEXITSTATUS(status) : 70;
			if (code == FORKED_RETIRED + HY_RETIRED_ASKED) {
				return false;
			}
			if (code > FORKED_RETIRED && code < FORKED_RETIRED + HY_RETIRED_END) {
				worker_exit((enum hy_retired)(code - FORKED_RETIRED));
			}
			_exit(code);
		}
	}
}

/* Each request of this worker runs in a process of its own. Returns in such a one, or false. */
bool fork_from_now_on(void)
{
	const char *wrong = randomness_entropy();
	rewind_uuid_sequence((unsigned)getppid() * 1031u + hy_ring_worker());
	zygote_worker_ready();
	wrong = wrong != NULL ? wrong : rewind_watch();
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	return fork_next();
}
