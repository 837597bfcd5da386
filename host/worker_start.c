/*
 * hayate_on_worker_start(callable): what the application wants done in each worker, after its fork and before its first
 * request: opening the connections that are to be kept (warm.c). What it did becomes part of the worker's own snapshot,
 * on top of the one that all share.
 *
 * It runs with `connections = "warm"` only, where the process is rewound by userfaultfd: elsewhere a connection would
 * not be kept, and requests open what they need by themselves. An exception leaves the worker as it is then, without
 * the connection: the log has it once, and the worker is replaced after ten seconds, since the server may be back, the
 * next one after twenty, and so on. So it is with a server that takes connections and says nothing: after ten seconds
 * the step's sockets are shut down, and whoever reads from one finds its end. A fatal error, a thread, or a SQLite
 * connection in the middle of something ends it.
 */
#include "host.h"

#include "php_output.h"
#include "zend_exceptions.h"

#include "rewind/rewind.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

/* How long the step may wait for others, in seconds. */
#define PATIENCE 10
/* Numbers of descriptors that are looked at. */
#define MOST 4096

static zval callable;
/* Descriptors that are older than the step. */
static bool older[MOST];
static bool runs;

bool worker_start_runs(void)
{
	return runs;
}

PHP_FUNCTION(hayate_on_worker_start)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();
	if (handle_reached() || handle_warming()) {
		zend_throw_error(NULL, "hayate_on_worker_start() must be called before the first hayate_handle_request()");
		RETURN_THROWS();
	}
	zval_ptr_dtor(&callable);
	ZVAL_COPY(&callable, &call.function_name);
}

static bool note_older(int fd, void *to)
{
	if (fd < MOST) {
		older[fd] = true;
	}
	return true;
}

/* A client that waits for a day (mysqlnd.net_read_timeout), or connects to nobody, learns that nothing comes. */
static void shut_sockets_down(int signal)
{
	int error = errno;
	for (int fd = 0; fd < MOST; fd++) {
		struct stat st;
		if (!older[fd] && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) {
			shutdown(fd, SHUT_RDWR);
		}
	}
	errno = error;
}

static struct sigaction before;

/* Unless the boot has that timer, or its signal, for itself. */
static bool watch(void)
{
	struct itimerval other = {0};
	struct sigaction ours = {.sa_handler = shut_sockets_down, .sa_flags = SA_RESTART};
	if (!zygote_each_fd(note_older, NULL) || getitimer(ITIMER_REAL, &other) != 0 || other.it_value.tv_sec != 0 ||
	    other.it_value.tv_usec != 0 || sigaction(SIGALRM, NULL, &before) != 0 || before.sa_handler != SIG_DFL ||
	    sigaction(SIGALRM, &ours, NULL) != 0) {
		return false;
	}
	/* Again each second: who connects once more waits as long. */
	struct itimerval value = {.it_interval = {.tv_sec = 1}, .it_value = {.tv_sec = PATIENCE}};
	rewind_set_timer(ITIMER_REAL, &value);
	return true;
}

static void watch_over(void)
{
	struct itimerval none = {0};
	rewind_set_timer(ITIMER_REAL, &none);
	sigaction(SIGALRM, &before, NULL);
}

/* Says whether a fatal error unwound it. */
static bool call(void)
{
	volatile bool fatal = true;
	zval result;
	ZVAL_UNDEF(&result);
	php_output_activate();
	zend_try
	{
		call_user_function(NULL, NULL, &callable, &result, 0, NULL);
		lifecycle_leave_if_out_of_memory();
		if (EG(exception) == NULL || zend_is_unwind_exit(EG(exception))) {
			zend_clear_exception();
			warm_started();
		} else if (!warm_retry()) {
			zend_clear_exception();
		} else {
			zend_class_entry *base =
			    instanceof_function(EG(exception)->ce, zend_ce_exception) ? zend_ce_exception : zend_ce_error;
			zval room;
			zend_string *said =
			    zval_get_string(zend_read_property(base, EG(exception), ZEND_STRL("message"), true, &room));
			log_format("What hayate_on_worker_start() was given threw %s: %s. The worker goes on without what it "
			           "should have done, for ten seconds; then another one tries. Each that fails as well goes on for "
			           "twice as long, up to ten minutes, and says nothing.",
			           ZSTR_VAL(EG(exception)->ce->name), ZSTR_VAL(said));
			zend_string_release(said);
			zend_clear_exception();
		}
		zval_ptr_dtor(&result);
		php_output_discard_all();
		fatal = false;
	}
	zend_end_try();
	php_output_deactivate();
	return fatal;
}

void worker_start_run(void)
{
	if (Z_TYPE(callable) == IS_UNDEF || !options.warm_connections || options.rewind != REWIND_UFFD) {
		return;
	}
	boot_note_encodings();
	runs = true;
	bool watched = watch();
	const char *wrong = call() ? "a fatal error ended what hayate_on_worker_start() was given" : NULL;
	if (watched) {
		watch_over();
	}
	runs = false;
	boot_keep_encodings();
	shutdown_keep_of_step();
	clocks_forget_process();
	boot_look_at_session();
	if (wrong == NULL && boot_left_session() != NULL) {
		wrong = "what hayate_on_worker_start() was given started a session, or wrote to $_SESSION, which each request "
		        "would find. To avoid it: start it in the request";
	}
	lifecycle_start_ahead();
	wrong = wrong != NULL ? wrong : sqlite_left_open();
	wrong = wrong != NULL ? wrong : leftovers_open();
	wrong = wrong != NULL ? wrong : archives_left();
	wrong = wrong != NULL ? wrong : unknown_child();
	wrong = wrong != NULL ? wrong : unknown_left();
	wrong = wrong != NULL ? wrong : unknown_stale();
	wrong = wrong != NULL ? wrong : boot_files_left(NULL);
	wrong = wrong != NULL ? wrong : locks_left();
	locks_lend(); /* each worker would wait for the one before it */
	if (wrong == NULL && zygote_left_threads(1)) {
		wrong = "what hayate_on_worker_start() was given left a thread running";
	}
	wrong = wrong != NULL ? wrong : snapshot_extend();
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
}
