/*
 * OPcache is filled before the application boots: a process that is forked for it handles the warm-up requests in
 * classic mode, and ends.
 *
 * What a process compiles for the first time it compiles in its own memory, amid the objects that the application makes
 * meanwhile; when OPcache has its copy, holes are left. Where OPcache has all of it beforehand, objects of the boot lie
 * close together, so the snapshot is smaller, and requests write to fewer pages of it: of a Symfony page with Twig to
 * 101 instead of 142.
 *
 * It is a help, never a condition: what fails there, fails unheard, and shows in the boot if it shows at all. Nothing
 * of it stays but OPcache's and APCu's shared memory, and what any visitor of these pages leaves outside.
 *
 * The boot must still compile what asked_once.c looks into. So in a recognised project OPcache is given the code of
 * others alone.
 */
#include "host.h"
#include "explain.h"
#include "stray.h"

#include "zend_compile.h"
#include "zend_language_scanner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* It delays the boot. What takes longer waits for something. */
#define MILLISECONDS 5000
#define MILLISECONDS_TO_END 500
/* At the second time classes are those that OPcache has linked at the first. */
#define TIMES 2

static zend_op_array *(*by_opcache)(zend_file_handle *, int);

static zend_op_array *compile_others(zend_file_handle *file, int type)
{
	return asked_once_looks_into(file->filename) ? compile_file(file, type) : by_opcache(file, type);
}

/* `report`: where each is told, or NULL. */
static ZEND_COLD ZEND_NORETURN void handle_all(const struct visit *visits, size_t count, const char *report)
{
	fork_be_silent(false);
	hy_ring_pretend();
	signal(SIGALRM, SIG_DFL);
	by_opcache = zend_compile_file;
	zend_compile_file = compile_others;
	for (size_t i = 0; i < count * TIMES; i++) {
		const struct visit *visit = &visits[i % count];
		bool is_script = visit->script != NULL && strcmp(visit->script, options.worker_script) != 0;
		if (is_script && access(visit->script, R_OK) == 0) {
			options.worker_mode = false;
			options.rewind = REWIND_OFF;
			uint64_t began = hy_now();
			if (visit_begin(visit, "warm-up", &request.exchange)) {
				worker_serve_classic();
				if (i >= count) {
					explain_primed(report, visit->target, hy_now() - began);
				}
			}
		}
	}
	_exit(0);
}

static bool is_over(struct pollfd *end, int milliseconds)
{
	int over;
	do {
		over = end->fd < 0 ? 0 : poll(end, 1, milliseconds);
	} while (over < 0 && errno == EINTR);
	return over > 0;
}

void prime_opcache(void)
{
	bool compares = front_controller_boots() && options.warmup_count == 0;
	const struct visit *visits = compares ? options.compared : options.warmup;
	size_t count = compares ? MIN(options.compared_count, 1) : options.warmup_count;
	if (options.rewind == REWIND_OFF || options.development || count == 0 || !opcache_is_on()) {
		return;
	}
	pid_t self = getpid(), pid = host_fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		if (getppid() != self) {
			_exit(0);
		}
		/* What is compared is no warm-up. */
		handle_all(visits, count, compares ? NULL : explain_file);
	}
	if (pid < 0) {
		return;
	}
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	/* First PHP is to end it, which gives back what it holds for others, as a lock in APCu's memory. */
	if (!is_over(&end, MILLISECONDS)) {
		kill(pid, SIGPROF);
		if (!is_over(&end, MILLISECONDS_TO_END)) {
			kill(pid, SIGKILL);
		}
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
	}
	if (end.fd >= 0) {
		close(end.fd);
	}
}
