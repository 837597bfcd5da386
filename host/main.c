/*
 * The PHP host: a process that embeds libphp and serves requests that arrive through shared memory.
 *
 * Start-up, in this order and for these reasons: close what we must not inherit; drop capabilities before any PHP code
 * or extension runs; start PHP; become the zygote. Workers are forked from it.
 */
#include "host.h"
#include "explain.h"
#include "engine.h"
#include "stray.h"

#include "php_main.h"
#include "zend_signal.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void keep_to_ourselves(int first, int last)
{
	for (int fd = first; fd <= last; fd++) {
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
			fprintf(stderr, "hayate-php: descriptor %d is missing; the host is started by hayate, not by hand\n", fd);
			exit(2);
		}
	}
}

/* Maps the memory on the way, which says how many eventfds there are. Returns NULL, or what is wrong with it. */
static const char *keep_only_our_descriptors(void)
{
	keep_to_ourselves(HY_FD_CONTROL, HY_FD_CLASSES);
	close(HY_FD_OPTIONS); /* they have been read */
	const char *wrong = hy_ring_map(HY_FD_MEMORY, HY_FD_EVENTS);
	const int events = (int)hy_ring_bells();
	if (wrong == NULL) {
		keep_to_ourselves(HY_FD_EVENTS, HY_FD_EVENTS + events - 1);
		syscall(SYS_close_range, HY_FD_EVENTS + events, ~0u, 0);
	}
	return wrong;
}

/*
 * The master may bind ports below 1024 by a capability that its service manager hands down (ambient). PHP, and what it
 * starts, has no use for it: a script could take such a port after a restart. Who was root has become the application's
 * user before this program began, and lost them with that; where PHP is to run as root, it is left what makes it root.
 */
static const char *drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
	if (syscall(SYS_capget, &header, sets) != 0) {
		return "the process cannot read its capabilities";
	}
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		sets[i].inheritable = 0; /* with it the ambient set, which is never larger */
		if (geteuid() != 0) {
			sets[i].effective = sets[i].permitted = 0;
		}
	}
	return syscall(SYS_capset, &header, sets) == 0 ? NULL : "the process cannot drop its capabilities";
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

/* As php-fpm: its environment chooses the ini files, and scripts do not see it. What the application sets itself stays.
 */
static void lend_ini_environment(bool lend)
{
	for (size_t i = 0; i < options.ini_env_count; i++) {
		const char *pair = options.ini_env[i];
		size_t name = strcspn(pair, "=") + 1;
		char *variable = strndup(pair, name - 1);
		if (variable != NULL && options_env(variable) == NULL) {
			if (lend) {
				setenv(variable, pair + name, 1);
			} else {
				unsetenv(variable);
			}
		}
		free(variable);
	}
}

/* What this process is before any code of PHP's or of an extension's runs in it. NULL, or why it cannot be that. */
static const char *settle(void)
{
	/* A terminal's Ctrl-C is for the master, whose front drains; it must not reach PHP. */
	setsid();
	const char *wrong = drop_capabilities();
	if (wrong != NULL) {
		return wrong;
	}
	if (options.no_new_privileges) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	}
	/* After any change of credentials, which may clear it: the master's death must not leave orphans. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	signal(SIGPIPE, SIG_IGN);
	/* Meant for the front (logs, reload) and sent to the whole group by some service managers. */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	set_environment();
	if (options.cwd != NULL && chdir(options.cwd) != 0) {
		static char why[PATH_MAX + 128];
		snprintf(why, sizeof why, "%s cannot be entered by user %ld of PHP: %s; check that it exists, and its rights",
		         options.cwd, (long)geteuid(), strerror(errno));
		return why;
	}
	return NULL;
}

/* As php-fpm's php_admin_value (fpm_php_zend_ini_alter_master()): ini_set() and .user.ini are refused. */
static void fix_ini(void)
{
	for (size_t i = 0; i < options.fixed_ini_count; i++) {
		zend_ini_entry *entry =
		    zend_hash_str_find_ptr(EG(ini_directives), options.fixed_ini[i], strlen(options.fixed_ini[i]));
		if (entry != NULL) {
			entry->modifiable = ZEND_INI_SYSTEM;
		}
	}
}

/* PHP keeps these for get_cfg_var(), and says nothing of them. */
static void warn_of_unknown_ini(void)
{
	for (const char **name = options.ini_names; *name != NULL; name++) {
		size_t len = strlen(*name);
		bool is_list = strcmp(*name, "extension") == 0 || strcmp(*name, "zend_extension") == 0;
		if (!is_list && zend_hash_str_find_ptr(EG(ini_directives), *name, len) == NULL) {
			log_format("ini: neither PHP nor an extension that is loaded knows '%s', so it is in vain unless the "
			           "application asks "
			           "get_cfg_var() for it; hayate check says which setting has a name like it",
			           *name);
		}
	}
}

static const char not_started[] = "PHP could not start; its messages are in the log above";

/* NULL, or why it did not start. */
static const char *start_php(char **argv)
{
	zend_signal_startup();
	request_startup();
	functions_before_startup();
	sapi_startup(&hayate_sapi);
	hayate_sapi.executable_location = argv[0];
	hayate_sapi.php_ini_path_override = (char *)options.php_ini;
	hayate_sapi.ini_entries = errors_settings(options.ini);
	/* A thread that an extension starts here must leave SIGCHLD to the zygote, which waits for it. */
	sigset_t child, before;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &before);
	lend_ini_environment(true);
	bool started = hayate_sapi.startup(&hayate_sapi) == SUCCESS;
	const char *unread = started ? ini_files_unread() : NULL;
	fix_ini();
	lend_ini_environment(false);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return started ? unread : not_started;
}

/* As ext/standard/info.c: no header has them. */
PHPAPI extern char *php_ini_opened_path, *php_ini_scanned_files;

/* A line, whatever a file or an extension is called. */
static void tell(const char *key, const char *text, size_t len)
{
	printf("%s=", key);
	for (size_t i = 0; i < len; i++) {
		putchar(iscntrl((unsigned char)text[i]) ? '?' : text[i]);
	}
	putchar('\n');
}

static void tell_ini_files(void)
{
	if (php_ini_opened_path != NULL) {
		tell("ini", php_ini_opened_path, strlen(php_ini_opened_path));
	}
	/* One in a line, with a comma behind it where another follows. */
	for (char *at = php_ini_scanned_files; at != NULL && *at != '\0';) {
		size_t len = strcspn(at, "\n");
		tell("ini", at, len > 0 && at[len - 1] == ',' ? len - 1 : len);
		at += len + (at[len] == '\n');
	}
}

/* Whatever the ini files say: what is wrong with them and with extensions is told, on standard error. */
static const char tells_all[] = "log_errors=1\nerror_log=\nerror_reporting=32767\ndisplay_errors=0\n"
                                "display_startup_errors=0\nhtml_errors=0\n";

/* For `hayate check`: a line KEY=TEXT for each thing to know. PHP is started only to see what it is made of; nothing
 * that an extension or a preloaded file prints meanwhile is among these lines. */
__attribute__((noreturn)) static void probe(char **argv)
{
	/* What hayate itself was started with, and what the options were in. */
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0);
	int said_to = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	char *ini = NULL;
	if (said_to < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 ||
	    asprintf(&ini, "%s%s", options.ini == NULL ? "" : options.ini, tells_all) < 0) {
		fprintf(stderr, "hayate-php: cannot ask PHP: %s\n", strerror(errno));
		_exit(1);
	}
	options.ini = ini;
	const char *wrong = settle();
	if (wrong != NULL) {
		fprintf(stderr, "hayate-php: %s\n", wrong);
		_exit(1);
	}
	wrong = start_php(argv);
	fflush(stdout);
	if (dup2(said_to, STDOUT_FILENO) < 0) {
		_exit(1);
	}
	options_print_tracking();
	if (wrong == NULL) {
		const char *why = options.worker_mode ? extensions_unsafe() : NULL;
		if (why != NULL) {
			printf("unsafe=%s\n", why);
		}
		printf("php=%s\n", engine_version());
		tell_ini_files();
		const zend_module_entry *module;
		ZEND_HASH_MAP_FOREACH_PTR(&module_registry, module)
		{
			tell("extension", module->name, strlen(module->name));
		}
		ZEND_HASH_FOREACH_END();
		zend_string *name;
		ZEND_HASH_MAP_FOREACH_STR_KEY(EG(ini_directives), name)
		{
			tell("setting", ZSTR_VAL(name), ZSTR_LEN(name));
		}
		ZEND_HASH_FOREACH_END();
	}
	fflush(stdout);
	if (wrong != NULL && wrong != not_started) {
		fprintf(stderr, "hayate-php: %s\n", wrong);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	options_parse(argc, argv);
	if (options.probe) {
		probe(argv);
	}
	const char *wrong = keep_only_our_descriptors();
	const char *no_rewind = options.rewind == REWIND_OFF ? NULL : rewind_init();
	if (no_rewind != NULL) {
		zygote_failed(no_rewind);
	}
	wrong = wrong != NULL ? wrong : stray_start();
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	wrong = settle();
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	isolation_zygote();

	wrong = start_php(argv);
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	warn_of_unknown_ini();
	const char *not_fit = options.rewind == REWIND_OFF || options.rewind == REWIND_FORK ? NULL : extensions_unsafe();
	if (not_fit != NULL) {
		zygote_boot_again(HY_AGAIN_FORK, not_fit);
	}
	if (options.worker_mode && !options.private_boot && rewind_threads() > 1) {
		zygote_boot_again(HY_AGAIN_PRIVATE, "an extension started a thread with PHP, which a fork would lose");
	}
	front_controller_startup();
	owner_startup();
	functions_disabled_for_others();
	asked_once_startup();
	asked_by_packages_startup();
	asked_of_framework_startup();
	try_out_startup();
	learn_startup();
	by_name_startup();
	declares_startup();
	in_the_way_startup();
	clocks_startup();
	time_limit_startup();
	zygote_booting();
	if (options.worker_mode && options.rewind != REWIND_OFF) {
		boot_files_share();
		frozen_share();
	}
	if (options.worker_mode) {
		prime_opcache();
	}
	if (options.worker_mode && !options.private_boot) {
		worker_boot();
	}
	if (options.worker_mode) {
		compare_once_for_all();
	}
	zygote_run();
	if (options.worker_mode) {
		worker_boot();
	}
	worker_classic();
}
