/*
 * hayate_handle_request(): worker mode.
 *
 * The first call ends the boot; warm-up requests follow, and when they are over the process becomes the zygote right
 * there (in a shared boot), and each worker is forked out of that very call. Every call then waits for a request, gives
 * PHP fresh superglobals, output layer, headers and session, runs the handler, and ends the request in PHP's own order.
 *
 * With state kept, the request ends when the handler returns, and everything else is the application's to keep. With
 * rewind it ends with the next call (or the script's end), as a script of its own would: what follows the handler in
 * the loop belongs to it, and then come shutdown functions, destructors, output, session. That call rewinds the process
 * into the one in which the boot ended. Without tracking that call forks for each request instead.
 *
 * exit() and uncaught exceptions end the request only. A fatal error unwinds the whole script (PHP leaves no other
 * way): then worker_boot() ends the request, and the process or its present state.
 */
#include "host.h"
#include "explain.h"
#include "stray.h"

#include "ext/standard/basic_functions.h"
#include "ext/standard/php_filestat.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "zend_exceptions.h"
#include "zend_interfaces.h"
#include "zend_observer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit status of a process forked for one request: the request is over; or this plus enum hy_retired. */
#define FORKED_SERVED 0
#define FORKED_RETIRED 100

static bool booted;
static bool reached;
static bool leaving;
/* This process was forked for one request. */
static bool forked;
static bool in_request;
static bool in_handler;
/* When the request before was over. A rewind leaves it alone. */
static uint64_t *over_at;
static uint64_t rewind_ns;
/* A bail-out was caught while the request was being ended: the engine was unwound at a place where it usually ends. In
 * which step, NULL otherwise. */
static const char *doubtful;
/* The step of cleanup.c in which that happened, NULL otherwise. */
static const char *unclean;

bool handle_reached(void)
{
	return reached;
}

uint64_t handle_rewind_ns(void)
{
	return rewind_ns;
}

/* What a request leaves is put back when it is over, or ends with its process. */
static bool rewinds(void)
{
	return reached && options.rewind != REWIND_OFF;
}

bool handle_warming(void)
{
	return booted && !reached;
}

/*
 * Extensions that keep per-request state of their own and are safe to take through request shutdown and startup while
 * everything else lives on. In the order of startup.
 */
static const char *const per_request_modules[] = {"zlib", "mbstring", "filter", "session"};
#define PER_REQUEST_MODULES ((int)(sizeof per_request_modules / sizeof per_request_modules[0]))

static void call_module(const char *name, bool startup)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, name, strlen(name));
	if (module == NULL) {
		return;
	}
	zend_try
	{
		if (startup && module->request_startup_func != NULL) {
			module->request_startup_func(module->type, module->module_number);
		} else if (!startup && module->request_shutdown_func != NULL) {
			module->request_shutdown_func(module->type, module->module_number);
		}
	}
	zend_catch
	{
		doubtful = name;
	}
	zend_end_try();
}

static void start_modules(void)
{
	for (int i = 0; i < PER_REQUEST_MODULES; i++) {
		call_module(per_request_modules[i], true);
	}
	boot_restore_encodings();
}

static void shut_modules_down(void)
{
	for (int i = PER_REQUEST_MODULES - 1; i >= 0; i--) {
		call_module(per_request_modules[i], false);
	}
	boot_restore_session_handlers();
}

static void drop_superglobals(void)
{
	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		zval_ptr_dtor(&PG(http_globals)[i]);
		ZVAL_UNDEF(&PG(http_globals)[i]);
	}
}

/*
 * Auto globals are built while a script that names them is compiled, and the scripts of a worker are compiled once. So
 * those that any script has asked for so far are built anew for each request; the others stay as cheap as PHP makes
 * them.
 */
static void import_superglobals(void)
{
	static const char *const lazy[] = {"_SERVER", "_ENV", "_REQUEST"};
	bool wanted[3];
	zend_auto_global *global;
	for (int i = 0; i < 3; i++) {
		global = zend_hash_str_find_ptr(CG(auto_globals), lazy[i], strlen(lazy[i]));
		wanted[i] = global != NULL && global->jit && !global->armed;
		if (global != NULL && global->jit) {
			zend_hash_str_del(&EG(symbol_table), lazy[i], strlen(lazy[i]));
		}
	}
	php_hash_environment();
	for (int i = 0; i < 3; i++) {
		global = zend_hash_str_find_ptr(CG(auto_globals), lazy[i], strlen(lazy[i]));
		if (wanted[i] && global != NULL && global->armed) {
			global->armed = global->auto_global_callback(global->name);
		}
	}
}

/*
 * A connection of SQLite in the middle of something holds a lock of the process: a fork does not take it along, and the
 * end of a request gives it back. Where state is kept, a boot of its own for each worker is enough.
 */
static void decline_busy_sqlite(bool warmed)
{
	const char *left = sqlite_left_open();
	if (left == NULL || (options.rewind == REWIND_OFF && zygote_is_worker())) {
		return;
	}
	char why[700];
	if (warmed) {
		snprintf(why, sizeof why, "a warm-up request %s", left);
		warmup_failed(why, false);
	}
	snprintf(
	    why, sizeof why,
	    "the boot %s, on a lock that does not outlive a request. To avoid it: fetch all rows, call closeCursor() or "
	    "finalize(), and commit, before hayate_handle_request()",
	    left);
	boot_again(options.rewind == REWIND_OFF ? HY_AGAIN_PRIVATE : HY_AGAIN_CLASSIC, why, false);
}

/* An archive that the boot left open would be written over what requests have written. */
static void decline_open_archive(bool warmed)
{
	const char *left = options.rewind == REWIND_OFF ? NULL : leftovers_open();
	if (left == NULL) {
		return;
	}
	char why[700];
	if (warmed) {
		snprintf(why, sizeof why, "a warm-up request %s", left);
		warmup_failed(why, false);
	}
	snprintf(
	    why, sizeof why,
	    "the boot %s, which each request would write over what others have written. To avoid it: close() it before "
	    "hayate_handle_request()",
	    left);
	boot_again(HY_AGAIN_CLASSIC, why, false);
}

/* What the boot left open that belongs to a request: its output layer, its headers. */
static void end_boot(void)
{
	php_output_end_all();
	php_output_deactivate();
	clocks_boot_over();
	randomness_boot_over();
	boot_keep();
	shut_modules_down();
	call_module("mbstring", true);
	boot_compare_encodings();
	call_module("mbstring", false);
	sapi_deactivate();
	SG(request_info).path_translated = NULL;
	boot_keep_settings();
	if (options.rewind != REWIND_OFF) {
		locks_lend();
	}
	booted = true;
	if (options.rewind != REWIND_OFF && zygote_left_threads(1)) {
		boot_again(HY_AGAIN_CLASSIC,
		           "the boot started a thread, which would write to memory that is being put back, and which a "
		           "fork would lose. To avoid it: start it in the request that needs it; libraries that "
		           "compute in parallel are told not to by OMP_NUM_THREADS=1 in the application's environment",
		           false);
	}
	decline_busy_sqlite(false);
	decline_open_archive(false);
	const char *unshareable = zygote_is_worker() ? NULL : zygote_unshareable();
	if (unshareable != NULL) {
		char why[512];
		snprintf(why, sizeof why, "the boot %s", unshareable);
		boot_again(HY_AGAIN_PRIVATE, why, false);
	}
	zygote_baseline();
	warmup_load_classes();
}

static void begin_request(void)
{
	in_request = true;
	if (options.rewind != REWIND_OFF) {
		locks_take();
	}
	if (rewinds()) {
		shutdown_lend();
	}
	request_begin();
	/* As php_request_startup(): what PHP finds wrong with a request is no fault of a line of the worker script. */
	zend_execute_data *script = EG(current_execute_data);
	EG(current_execute_data) = NULL;
	PG(during_request_startup) = 1;
	PG(modules_activated) = 0;
	PG(header_is_being_sent) = 0;
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	PG(in_user_include) = 0;
	EG(exit_status) = 0;
	php_output_activate();
	drop_superglobals();
	sapi_activate();
	clocks_request_begins();
	EG(timeout_seconds) = INI_INT("max_execution_time");
	if (EG(timeout_seconds) != 0) {
		zend_set_timeout(EG(timeout_seconds), 1);
	}
	if (PG(expose_php) && !SG(headers_sent)) {
		sapi_add_header((char *)SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
	}
	if (PG(output_handler) && PG(output_handler)[0]) {
		zval handler;
		ZVAL_STRING(&handler, PG(output_handler));
		php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		zval_ptr_dtor(&handler);
	} else if (PG(output_buffering)) {
		php_output_start_user(NULL, PG(output_buffering) > 1 ? PG(output_buffering) : 0, PHP_OUTPUT_HANDLER_STDFLAGS);
	} else if (PG(implicit_flush)) {
		php_output_set_implicit_flush(1);
	}
	import_superglobals();
	start_modules();
	PG(modules_activated) = 1;
	PG(during_request_startup) = 0;
	EG(current_execute_data) = script;
}

/* One step of the end of a request. A bail-out ends the step, and after the request the worker. */
static void run_step(const char *name, void (*run)(void))
{
	zend_try
	{
		run();
	}
	zend_catch
	{
		doubtful = name;
	}
	zend_end_try();
}
#define step(run) run_step(#run, run)

/*
 * What the request acquired is given up before its answer is complete, as under php-fpm: who has the answer, and asks
 * again, finds its locks free and its rows stored.
 */
static void clean_up(bool unwound)
{
	uint64_t started = hy_now();
	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	/* Settings are put back with the memory; the limit of a request is not one for releasing what it acquired. */
	zend_set_memory_limit(SIZE_MAX >> 1);
	/* A bail-out while the request was being ended left only memory behind, which is put back whole. */
	unclean = cleanup_request(unwound || doubtful != NULL);
	rewind_unlock();
	hy_ring_record()->clean_ns += hy_now() - started;
}

/* In the order of php_request_shutdown(), as far as it applies to a process that goes on. `unwound`: by a fatal error.
 */
static void end_request(bool unwound)
{
	explain_handler_over();
	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	step(shutdown_run);
	if (rewinds()) {
		explain_destructors_begin();
		destructors_call();
		explain_destructors_over();
	}
	step(php_output_end_all);
	step(zend_unset_timeout);
	shut_modules_down();
	step(php_output_deactivate);
	step(php_free_shutdown_functions);
	if (SG(request_info).request_body != NULL) {
		zend_list_delete(SG(request_info).request_body->res);
		SG(request_info).request_body = NULL;
	}
	if (rewinds()) {
		clean_up(unwound);
	}
	output_finish(false);
	step(sapi_deactivate);
	if (!rewinds()) {
		step(zend_ini_deactivate);
	}
	php_clear_stat_cache(0, NULL, 0);
	if (PG(last_error_message) != NULL) {
		zend_string_release(PG(last_error_message));
		PG(last_error_message) = NULL;
	}
	EG(flags) &= ~EG_FLAGS_IN_SHUTDOWN;
	if (!rewinds()) {
		locks_give_back();
	}
	in_request = false;
	hy_release(&request.exchange);
	request_end();
}

/* exit() ended the request; an exception that nobody caught is reported as PHP does at the end of a script. */
static void settle_exception(void)
{
	if (EG(exception) == NULL) {
		return;
	}
	if (zend_is_unwind_exit(EG(exception))) {
		zend_clear_exception();
		return;
	}
	if (zend_is_graceful_exit(EG(exception))) {
		return; /* a fiber being destroyed: not ours to stop */
	}
	if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
		zend_user_exception_handler();
	}
	if (EG(exception) != NULL) {
		if (zend_is_unwind_exit(EG(exception))) {
			zend_clear_exception();
		} else {
			zend_exception_error(EG(exception), E_ERROR);
			zend_clear_exception();
		}
	}
}

/*
 * Late 8.2 releases report exhausted memory and then unwind the stack with a pseudo-exception instead of a bail-out. It
 * looks like exit() but is a fatal error, and leaves the engine in a state that only the end of the script clears.
 */
static void leave_if_out_of_memory(void)
{
#ifdef ZEND_HAS_OOM
	if (ZEND_HAS_OOM()) {
		if (EG(exception) != NULL) {
			zend_clear_exception();
		}
		/* Else shutdown functions would not be called. */
		memset(&EG(delayed_oom), 0, sizeof EG(delayed_oom));
		if (!SG(headers_sent) && !PG(display_errors) && SG(sapi_headers).http_response_code == 200) {
			SG(sapi_headers).http_response_code = 500;
		}
		EG(exit_status) = 255;
		zend_bailout();
	}
#endif
}

/* Why a worker in doubt leaves. */
static enum hy_retired retired_for(enum rewind_doubt doubt)
{
	static const enum hy_retired reasons[] = {
	    [REWIND_SURE] = HY_RETIRED_NOT,
	    [REWIND_THREADS] = HY_RETIRED_REWIND_THREADS,
	    [REWIND_MAPPINGS] = HY_RETIRED_REWIND_MAPPINGS,
	    [REWIND_DESCRIPTORS] = HY_RETIRED_REWIND_DESCRIPTORS,
	    [REWIND_CONNECTION] = HY_RETIRED_REWIND_CONNECTION,
	    [REWIND_CHILD] = HY_RETIRED_REWIND_CHILD,
	    [REWIND_LIBRARY] = HY_RETIRED_REWIND_LIBRARY,
	    [REWIND_MEMORY] = HY_RETIRED_REWIND_MEMORY,
	    [REWIND_PROCESS] = HY_RETIRED_REWIND_PROCESS,
	};
	return reasons[doubt];
}

static void leave_process(enum hy_retired why)
{
	if (forked) {
		_exit(FORKED_RETIRED + (int)why);
	}
	worker_exit(why);
}

/* Ends the request, and returns to the state at the end of the boot. */
__attribute__((noreturn)) static void go_back(bool unwound)
{
	struct hy_worker *record = hy_ring_record();
	if (is_stray()) {
		stray_end();
	}
	EG(current_execute_data) = NULL;
	if (in_request) {
		end_request(unwound);
	} else {
		clean_up(unwound);
	}
	hy_ring_state(HY_WORKER_REWINDING);
	uint64_t started = hy_now();
	if (over_at != NULL) {
		*over_at = started;
	}
	enum rewind_doubt doubt = rewind_doubt();
	if (doubt == REWIND_SURE && stray_left()) {
		doubt = REWIND_CHILD;
	}
	if (forked) {
		/* What the process leaves behind ends with it, but for what it told others. */
		record->rewinds++;
		if (opcache_reset_called()) {
			leave_process(HY_RETIRED_REWIND_OPCACHE);
		}
		_exit(doubt == REWIND_CONNECTION ? FORKED_RETIRED + HY_RETIRED_REWIND_CONNECTION : FORKED_SERVED);
	}
	if (doubt != REWIND_SURE) {
		leave_process(retired_for(doubt));
	}
	if (sqlite_loses_locks()) {
		leave_process(HY_RETIRED_REWIND_CONNECTION);
	}
	if (opcache_reset_called()) {
		leave_process(HY_RETIRED_REWIND_OPCACHE);
	}
	if (unclean != NULL) {
		log_format("A fatal error ended a step at the end of a request (%s); this worker is replaced.", unclean);
		leave_process(HY_RETIRED_REWIND_CLEANUP);
	}
	rewind_back();
}

void handle_script_over(bool fatal)
{
	EG(current_execute_data) = NULL;
	if (fatal && ZEND_OBSERVER_ENABLED) {
		step(zend_observer_fcall_end_all);
	}
	go_back(fatal);
}

bool handle_leaving(void)
{
	return leaving;
}

/* In a process that handles one request. */
static void begin_fork(void)
{
	forked = true;
	const char *wrong = rewind_forked();
	if (wrong != NULL) {
		log_format(HY_LOG_ERROR "%s, and requests must not share a position in it", wrong);
		_exit(70);
	}
	opcache_after_fork();
	randomness_seed();
}

bool handle_used_connection(int status)
{
	return status == FORKED_RETIRED + HY_RETIRED_REWIND_CONNECTION;
}

/*
 * A fork for each request; the next one waits already while the answer of the last one is on its way. Returns true in
 * the child, and false when this worker has to leave.
 */
static bool fork_for_requests(void)
{
	pid_t parent = getpid();
	for (;;) {
		if (worker_after_request() != HY_RETIRED_NOT) {
			return false;
		}
		clocks_between_requests();
		pid_t pid = host_fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
			if (getppid() != parent) {
				_exit(FORKED_SERVED);
			}
			begin_fork();
			return true;
		}
		int status = 0;
		if (pid < 0 || waitpid(pid, &status, 0) != pid) {
			log_format(HY_LOG_ERROR "A process for the next request could not be forked: %s", strerror(errno));
			_exit(70);
		}
		rewind_child_over();
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
			if (code > FORKED_RETIRED && code <= FORKED_RETIRED + HY_RETIRED_REWIND_PROCESS) {
				worker_exit((enum hy_retired)(code - FORKED_RETIRED));
			}
			_exit(code);
		}
	}
}

/* Each request of this worker runs in a process of its own. Returns in such a one, or false. */
static bool fork_from_now_on(void)
{
	const char *wrong = randomness_entropy();
	rewind_uuid_sequence((unsigned)getppid() * 1031u + hy_ring_worker());
	zygote_worker_ready();
	wrong = wrong != NULL ? wrong : rewind_watch();
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	return fork_for_requests();
}

/* The warm-up requests are over, if there were any. */
static void end_warmup(void)
{
	if (options.rewind != REWIND_OFF) {
		shutdown_settle();
	}
	gc_collect_cycles(); /* what a cycle keeps open is not meant to stay */
	decline_busy_sqlite(options.warmup_count > 0);
	decline_open_archive(options.warmup_count > 0);
	const char *left = zygote_unshareable();
	if (left != NULL && options.warmup_count > 0) {
		char why[512];
		snprintf(why, sizeof why, "a warm-up request %s and left it so", left);
		warmup_failed(why, false);
	}
	if (doubtful != NULL && options.rewind != REWIND_OFF) {
		char why[512];
		snprintf(why, sizeof why, "a fatal error struck at the end of a warm-up request (%s)", doubtful);
		warmup_failed(why, true);
	}
}

/* As begin_work(), in a process of the comparison, which forks for each request. */
static const char *begin_comparison(void)
{
	gc_collect_cycles();
	boot_make_settings_modified();
	snapshot_prepare();
	reached = true;
	const char *wrong = randomness_entropy();
	return wrong != NULL ? wrong : rewind_watch();
}

/* The application has booted and is warm. Returns in a worker: false if it has to leave at once. */
static bool begin_work(void)
{
	warmup_over();
	if (options.rewind != REWIND_OFF) {
		boot_make_settings_modified();
	}
	const char *misplaced = options.rewind == REWIND_OFF || options.rewind == REWIND_FORK ? NULL : rewind_misplaced();
	if (misplaced != NULL) {
		char why[512];
		snprintf(
		    why, sizeof why,
		    "hayate_handle_request() cannot be gone back to: %s. To avoid it: call it from the worker script itself",
		    misplaced);
		boot_again(HY_AGAIN_FORK, why, false);
	}
	if (!zygote_is_worker()) {
		zygote_adopt();
	} else {
		zygote_snapshot();
	}
	reached = true;
	struct hy_worker *record = hy_ring_record();
	record->tracking = (uint32_t)options.rewind;
	/* It opens what it reads; that must be there at the point. */
	(void)worker_after_request();
	if (options.rewind == REWIND_OFF) {
		zygote_worker_ready();
		return true;
	}
	if (options.rewind == REWIND_FORK) {
		return fork_from_now_on();
	}
	const char *wrong = snapshot_check();
	wrong = wrong != NULL ? wrong : clocks_keep();
	wrong = wrong != NULL ? wrong : opcache_keep();
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	over_at = rewind_keep(sizeof *over_at);
	rewind_verify(options.rewind_verify, log_own);
	sqlite_note_locks();
	/* The zygote is the parent of all workers of this generation, whose numbers differ. */
	rewind_uuid_sequence((unsigned)getppid() * 1031u + hy_ring_worker());
	zygote_worker_ready();
	long rewinds = rewind_point();
	if (rewinds < 0) {
		log_format("This worker cannot be rewound: %s. Each of its requests runs in a process of its own instead.",
		           rewind_error());
		options.rewind = REWIND_FORK;
		record->tracking = (uint32_t)options.rewind;
		return fork_from_now_on();
	}
	randomness_seed();
	const struct rewind_counters *counters = rewind_counters();
	record->rewinds = counters->rewinds;
	record->scan_ns = counters->scan_ns;
	record->copy_ns = counters->copy_ns;
	record->cold_pages = counters->cold_pages;
	record->hot_pages = counters->hot_pages;
	if (rewinds > 0) {
		rewind_ns = over_at == NULL ? 0 : hy_now() - *over_at;
		explain_rewound();
	}
	if (rewind_doubt_after() != REWIND_SURE) {
		worker_exit(retired_for(rewind_doubt_after()));
	}
	clocks_between_requests();
	return worker_after_request() == HY_RETIRED_NOT;
}

PHP_FUNCTION(hayate_handle_request)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();

	if (!options.worker_mode) {
		zend_throw_error(NULL, "hayate_handle_request() works in worker mode only: start this application with "
		                       "hayate serve --worker FILE");
		RETURN_THROWS();
	}
	if (is_stray()) {
		stray_end();
	}
	if (in_handler) {
		zend_throw_error(NULL, "hayate_handle_request() must not be called while it handles a request");
		RETURN_THROWS();
	}
	if (!reached) {
		bool compares = false;
		if (!booted) {
			explain_boot_over();
			end_boot();
			compares = compare_keep_cold(begin_comparison, &request.exchange);
		}
		if (!compares && !warmup_next(&request.exchange)) {
			end_warmup();
			compares = compare_warm(begin_comparison, &request.exchange);
			if (!compares && !begin_work()) {
				goto leave;
			}
		}
		if (compares) {
			begin_fork();
		}
	} else if (options.rewind != REWIND_OFF) {
		/* It will not be called, and what it alone holds would not outlive a script without this loop. */
		zval held;
		ZVAL_COPY_VALUE(&held, ZEND_CALL_ARG(execute_data, 1));
		ZVAL_UNDEF(ZEND_CALL_ARG(execute_data, 1));
		zval_ptr_dtor(&held);
		destructors_leave_functions();
		step(settle_exception);
		go_back(false);
	} else if (worker_after_request() != HY_RETIRED_NOT) {
		goto leave;
	}
	if (request.exchange.slot == NULL && !hy_ring_next(&request.exchange)) {
		if (forked) {
			_exit(FORKED_RETIRED + HY_RETIRED_ASKED);
		}
		goto leave;
	}

	zval result;
	ZVAL_UNDEF(&result);
	call.retval = &result;
	/* PHP warns of what it finds in a request (a body above post_max_size) before the application runs, as it does in
	 * classic mode: not to a handler that the boot has set, whose exception would keep the handler of requests from
	 * ever running. */
	zval error_handler;
	ZVAL_COPY_VALUE(&error_handler, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	begin_request();
	explain_handler_begins();
	ZVAL_COPY_VALUE(&EG(user_error_handler), &error_handler);
	in_handler = true;
	zend_call_function(&call, &cache);
	in_handler = false;
	if (is_stray()) {
		stray_end();
	}
	leave_if_out_of_memory();
	zval_ptr_dtor(&result);
	/* What follows runs as at the end of a script, where no code is executing: PHP reports an exception that nobody
	 * catches only then. */
	zend_execute_data *frame = EG(current_execute_data);
	EG(current_execute_data) = NULL;
	step(settle_exception);
	if (rewinds()) {
		after_handler(frame->prev_execute_data, run_step);
	} else {
		end_request(false);
	}
	if (handle_warming() && options.rewind != REWIND_OFF) {
		warmup_request_over();
	}
	EG(current_execute_data) = frame;
	if (doubtful != NULL && options.rewind == REWIND_OFF) {
		log_format("A fatal error ended a step at the end of a request (%s); this worker is replaced.", doubtful);
		worker_exit(HY_RETIRED_FATAL);
	}
	RETURN_TRUE;

leave:
	leaving = true;
	/* The script runs on to its end, as one that never served would: with an output layer, and its shutdown functions.
	 * But under rewinding those have run, and all that the end of a script means, at the end of each request. */
	if (options.rewind == REWIND_OFF) {
		shutdown_lend();
	} else {
		cleanup_leave();
	}
	php_output_activate();
	sapi_activate();
	/* It has been shut down with the last request, and does not bear that twice: the script's end does it again. */
	call_module("mbstring", true);
	RETURN_FALSE;
}
