/*
 * The PHP host: a process that embeds libphp and serves requests that arrive through shared memory.
 *
 * Start-up, in this order and for these reasons: close what we must not inherit; drop privileges before any PHP code or
 * extension runs; start PHP; become the zygote. Workers are forked from it.
 */
#include "host.h"

#include "php_main.h"
#include "zend_signal.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void keep_only_our_descriptors(void)
{
	syscall(SYS_close_range, HY_FD_EVENT + 1, ~0u, 0);
	for (int fd = HY_FD_CONTROL; fd <= HY_FD_EVENT; fd++) {
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
			fprintf(stderr, "hayate-php: descriptor %d is missing; the host is started by hayate, not by hand\n", fd);
			exit(2);
		}
	}
}

static void drop_privileges(void)
{
	if (options.user == NULL || geteuid() != 0) {
		return;
	}
	const struct passwd *user = getpwnam(options.user);
	if (user == NULL) {
		zygote_failed("the configured user does not exist on this system");
	}
	gid_t gid = user->pw_gid;
	if (options.group != NULL) {
		const struct group *group = getgrnam(options.group);
		if (group == NULL) {
			zygote_failed("the configured group does not exist on this system");
		}
		gid = group->gr_gid;
	}
	if (initgroups(options.user, gid) != 0 || setgid(gid) != 0 || setuid(user->pw_uid) != 0) {
		zygote_failed("the process may not change to the configured user and group");
	}
}

/* As php-fpm with clear_env: what the front was started with is none of the application's business. */
static void set_environment(void)
{
	clearenv();
	const struct passwd *user = getpwuid(getuid());
	if (user != NULL) {
		setenv("USER", user->pw_name, 1);
		setenv("HOME", user->pw_dir, 1);
	}
	for (size_t i = 0; i < options.env_count; i++) {
		char *pair = strdup(options.env[i]); /* putenv keeps it */
		putenv(pair);
	}
}

int main(int argc, char **argv)
{
	options_parse(argc, argv);
	keep_only_our_descriptors();
	const char *wrong = hy_ring_map(HY_FD_MEMORY, HY_FD_EVENT);
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	/* A terminal's Ctrl-C is for the front, which drains; it must not reach PHP. */
	setsid();
	drop_privileges();
	if (options.no_new_privileges) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	}
	/* After the change of user, which clears it: the front's death must not leave orphans. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	signal(SIGPIPE, SIG_IGN);
	/* Meant for the front (logs, reload) and sent to the whole group by some service managers. */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	set_environment();
	if (options.cwd != NULL && chdir(options.cwd) != 0) {
		zygote_failed(
		    "the application's directory cannot be entered; check that it exists and that the user may read it");
	}

	zend_signal_startup();
	request_startup();
	sapi_startup(&hayate_sapi);
	hayate_sapi.executable_location = argv[0];
	hayate_sapi.php_ini_path_override = (char *)options.php_ini;
	hayate_sapi.ini_entries = options.ini;
	if (hayate_sapi.startup(&hayate_sapi) == FAILURE) {
		zygote_failed("PHP could not start; its messages are in the log above");
	}
	zygote_baseline();
	if (options.worker_mode && !options.private_boot) {
		worker_boot();
	}
	zygote_run();
	if (options.worker_mode) {
		worker_boot();
	}
	worker_classic();
}
