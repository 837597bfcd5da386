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
 * In classic mode the request is there before the script: the first call runs the handler, as the script itself could,
 * and the next one says that there are no more. So a front controller of the same text serves both.
 *
 * exit() and uncaught exceptions end the request only. A fatal error unwinds the whole script (PHP leaves no other
 * way): then worker_boot() ends the request, and the process or its present state.
 */
#include "host.h"
#include "explain.h"
#include "stray.h"

#include "php_output.h"
#include "zend_exceptions.h"
#include "zend_observer.h"

#include <unistd.h>

#define CALLED_BY_HANDLER "hayate_handle_request() must not be called while it handles a request"

static bool booted;
static bool reached;
static bool leaving;
static bool in_handler EACH_REQUEST;
/* When the request before was over. A rewind leaves it alone. */
static uint64_t *over_at;
static uint64_t rewind_ns EACH_REQUEST;

bool handle_reached(void)
{
	return reached;
}

uint64_t handle_rewind_ns(void)
{
	return rewind_ns;
}

bool handle_rewinds(void)
{
	return reached && options.rewind != REWIND_OFF;
}

bool handle_warming(void)
{
	return booted && !reached;
}

/* What requests of the comparison are to find in files of the boot, and are not to leave there. */
static void note_files(void)
{
	if (options.rewind != REWIND_OFF) {
		boot_files_note();
	}
}

/* What the boot left open that belongs to a request: its output layer, its headers. */
static void end_boot(void)
{
	decline_note_answer();
	php_output_end_all();
	php_output_deactivate();
	clocks_boot_over();
	randomness_boot_over();
	boot_keep();
	boot_look_at_session();
	lifecycle_shut_modules_down();
	if (options.rewind != REWIND_OFF) {
		archives_forget();
	}
	lifecycle_note_session();
	lifecycle_module("mbstring", true);
	boot_compare_encodings();
	lifecycle_module("mbstring", false);
	sapi_deactivate();
	lifecycle_settle_outside(); /* a buffer's callback, or the one for headers */
	SG(request_info).path_translated = NULL;
	boot_keep_settings();
	if (options.rewind != REWIND_OFF) {
		locks_lend();
		worker_close_script();
	}
	boot_note_process();
	booted = true;
	decline_boot();
	rewind_boot_over(true);
	note_files();
	zygote_baseline();
	by_name_load();
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

/* Ends the request, and returns to the state at the end of the boot. */
__attribute__((noreturn)) static void go_back(bool unwound)
{
	struct hy_worker *record = hy_ring_record();
	if (is_stray()) {
		stray_end();
	}
	EG(current_execute_data) = NULL;
	if (lifecycle_in_request()) {
		lifecycle_end(unwound);
	} else {
		lifecycle_clean_up(unwound);
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
	if (doubt == REWIND_SURE && boot_files_written()) {
		doubt = REWIND_DESCRIPTORS;
	}
	if (fork_is_for_one_request()) {
		compare_request_over();
		record->rewinds++;
		if (in_the_way()) {
			fork_end(HY_RETIRED_CLASS_DECLARED);
		}
		if (opcache_reset_called()) {
			fork_end(HY_RETIRED_REWIND_OPCACHE);
		}
		/* Of all that a request may do, this outlives its process. That a file is another one by now is no fault of a
		 * request of the comparison: the boot of another worker may have done so. */
		enum rewind_doubt stays = doubt == REWIND_CONNECTION ? doubt
		                          : boot_files_written()     ? REWIND_DESCRIPTORS
		                                                     : REWIND_SURE;
		bool replaced = stays == REWIND_SURE && boot_files_replaced() && !compare_answers();
		fork_end(replaced ? HY_RETIRED_FILE_REPLACED : retired_for(stays));
	}
	/* First: else what comes instead would have it in the way as well. */
	if (in_the_way()) {
		worker_exit(HY_RETIRED_CLASS_DECLARED);
	}
	if (doubt != REWIND_SURE) {
		worker_exit(retired_for(doubt));
	}
	if (boot_files_replaced()) {
		worker_exit(HY_RETIRED_FILE_REPLACED);
	}
	if (sqlite_loses_locks()) {
		worker_exit(HY_RETIRED_REWIND_CONNECTION);
	}
	if (opcache_reset_called()) {
		worker_exit(HY_RETIRED_REWIND_OPCACHE);
	}
	if (lifecycle_left_connection()) {
		worker_exit(HY_RETIRED_REWIND_CONNECTION);
	}
	const char *unclean = lifecycle_unclean();
	if (unclean != NULL) {
		log_format("A fatal error ended a step at the end of a request (%s); this worker is replaced.", unclean);
		worker_exit(HY_RETIRED_REWIND_CLEANUP);
	}
	rewind_back();
}

void handle_script_over(bool fatal)
{
	EG(current_execute_data) = NULL;
	/* Of code behind the handler. */
	lifecycle_forget_out_of_memory();
	if (fatal && ZEND_OBSERVER_ENABLED) {
		LIFECYCLE_STEP(zend_observer_fcall_end_all);
	}
	go_back(fatal);
}

bool handle_leaving(void)
{
	return leaving;
}

/* The warm-up requests are over, if there were any. */
static void end_warmup(void)
{
	if (options.rewind != REWIND_OFF) {
		shutdown_settle();
	}
	lifecycle_collect_outside(); /* what a cycle keeps open is not meant to stay */
	boot_forget_sessions();
	decline_warmup();
	in_the_way_noted();
}

/* As begin_work(), in a process of the comparison, which forks for each request. */
static const char *begin_comparison(void)
{
	lifecycle_collect_outside();
	boot_make_settings_modified();
	snapshot_prepare();
	reached = true;
	const char *wrong = randomness_entropy();
	return wrong != NULL ? wrong : rewind_watch();
}

/* A call ends with one reference less to the function without a name, after which PHP notes it as what may be garbage:
 * on two more pages to put back, each time. It is none as long as requests are handled. */
static void keep_from_garbage(const zval *handler)
{
	if (options.rewind != REWIND_OFF && Z_TYPE_P(handler) == IS_OBJECT) {
		GC_ADD_FLAGS(Z_OBJ_P(handler), GC_NOT_COLLECTABLE);
	}
}

/* The application has booted and is warm. Returns in a worker: false if it has to leave at once. */
static bool begin_work(void)
{
	warmup_over();
	clocks_forget_process();
	lifecycle_settle_outside();
	if (options.rewind != REWIND_OFF) {
		boot_make_settings_modified();
		patterns_compile();
	}
	decline_misplaced_call();
	frozen_tell();
	if (options.rewind != REWIND_OFF) {
		lifecycle_start_ahead();
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
	/* Requests of the comparison have written to the same ones. */
	boot_files_renew();
	if (options.rewind == REWIND_FORK) {
		boot_files_note();
		return fork_from_now_on();
	}
	rewind_boot_over(false);
	worker_start_run();
	boot_files_note();
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
	warm_settle();
	lifecycle_note_superglobals();
	zygote_worker_ready();
	long rewinds = rewind_point();
	if (rewinds < 0) {
		log_format("This worker cannot be rewound: %s. Each of its requests runs in a process of its own instead.",
		           rewind_error());
		warm_give_up();
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
	if (rewinds > 0) {
		boot_files_settle();
	}
	if (rewind_doubt_after() != REWIND_SURE) {
		worker_exit(retired_for(rewind_doubt_after()));
	}
	warm_after_rewind();
	clocks_between_requests();
	return worker_after_request() == HY_RETIRED_NOT;
}

static void handle_in_classic(zend_fcall_info *call, zend_fcall_info_cache *cache, zval *return_value)
{
	if (request.exchange.slot == NULL) {
		zend_throw_error(NULL, "hayate_handle_request() must not be called by opcache.preload, which has no request");
		RETURN_THROWS();
	}
	if (request.handler == HANDLER_RUNS) {
		zend_throw_error(NULL, CALLED_BY_HANDLER);
		RETURN_THROWS();
	}
	if (request.handler == HANDLER_IS_OVER) {
		RETURN_FALSE;
	}
	zval result;
	ZVAL_UNDEF(&result);
	call->retval = &result;
	request.handler = HANDLER_RUNS;
	zend_call_function(call, cache);
	request.handler = HANDLER_IS_OVER;
	zval_ptr_dtor(&result);
	if (EG(exception) != NULL) {
		RETURN_THROWS();
	}
	RETURN_TRUE;
}

PHP_FUNCTION(hayate_handle_request)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();

	if (!options.worker_mode) {
		handle_in_classic(&call, &cache, return_value);
		return;
	}
	if (is_stray()) {
		stray_end();
	}
	if (worker_start_runs()) {
		zend_throw_error(NULL, "hayate_handle_request() must not be called by what hayate_on_worker_start() was given");
		RETURN_THROWS();
	}
	if (in_handler) {
		zend_throw_error(NULL, CALLED_BY_HANDLER);
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
			compare_learn();
			end_warmup();
			note_files();
			compares = compare_warm(begin_comparison, &request.exchange);
			keep_from_garbage(&call.function_name);
			if (!compares && !begin_work()) {
				goto leave;
			}
		}
		if (compares) {
			fork_begin();
		}
	} else if (options.rewind != REWIND_OFF) {
		/* It will not be called, and what it alone holds would not outlive a script without this loop. */
		zval held;
		ZVAL_COPY_VALUE(&held, ZEND_CALL_ARG(execute_data, 1));
		ZVAL_UNDEF(ZEND_CALL_ARG(execute_data, 1));
		zval_ptr_dtor(&held);
		destructors_leave_functions();
		LIFECYCLE_STEP(lifecycle_settle_exception);
		go_back(false);
	} else if (worker_after_request() != HY_RETIRED_NOT) {
		goto leave;
	}
	if (request.exchange.slot == NULL && !hy_ring_next(&request.exchange)) {
		bool replaced = options.rewind != REWIND_OFF && sqlite_is_replaced();
		if (fork_is_for_one_request()) {
			fork_end(replaced ? HY_RETIRED_FILE_REPLACED : HY_RETIRED_ASKED);
		}
		if (replaced) {
			worker_exit(HY_RETIRED_FILE_REPLACED);
		}
		if (warm_lost()) {
			worker_exit(HY_RETIRED_CONNECTION_LOST);
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
	lifecycle_begin();
	after_begins();
	explain_handler_begins();
	ZVAL_COPY_VALUE(&EG(user_error_handler), &error_handler);
	in_handler = true;
	zend_call_function(&call, &cache);
	in_handler = false;
	if (is_stray()) {
		stray_end();
	}
	if (handle_rewinds()) {
		snapshot_hold(); /* this function gives the handler back, and what it alone holds */
	}
	lifecycle_leave_if_out_of_memory();
	zval_ptr_dtor(&result);
	/* What follows runs as at the end of a script, where no code is executing: PHP reports an exception that nobody
	 * catches only then. */
	zend_execute_data *frame = EG(current_execute_data);
	EG(current_execute_data) = NULL;
	LIFECYCLE_STEP(lifecycle_settle_exception);
	if (handle_rewinds()) {
		after_handler(frame->prev_execute_data, lifecycle_step);
	} else {
		lifecycle_end(false);
	}
	if (handle_warming() && options.rewind != REWIND_OFF) {
		residue_of_handler();
	}
	EG(current_execute_data) = frame;
	if (lifecycle_failed() != NULL && options.rewind == REWIND_OFF) {
		log_format("A fatal error ended a step at the end of a request (%s); this worker is replaced.",
		           lifecycle_failed());
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
	/* With state kept it has been shut down with the last request, and does not bear that twice: the script's end does
	 * it again. */
	lifecycle_module("mbstring", true);
	RETURN_FALSE;
}
