/*
 * hayate_on_worker_start(callable): what the application wants done in each worker, after its fork and before its first
 * request: opening the connections that are to be kept (warm.c). What it did becomes part of the worker's own snapshot,
 * on top of the one that all share. Each call adds a step: one that opens a connection which cannot be kept is left out
 * by the workers that follow, and the others are not.
 *
 * It runs with `connections = "warm"` only, where the process is rewound by userfaultfd: elsewhere a connection would
 * not be kept, and requests open what they need by themselves. After an exception, or exit(), nobody knows what is half
 * done, so the worker ends, and the one after it serves without this step. That one is replaced after ten seconds,
 * since the server may be back, the next one after twenty, and so on. So it is with a server that says nothing: a
 * client that has waited for ten seconds finds the end of its connection. A step that returns an exception has left
 * nothing half done: what else it did is kept, and another worker tries later as well. Workers that come meanwhile take
 * the step at once, for the rest of it, unless it took long: they serve without it.
 *
 * A thread, or a SQLite connection in the middle of something, fails the boot, and so does a fatal error, unless the
 * step has gone well before in a worker of this number.
 */
#include "host.h"
#include "rewind/rewind.h"
#include "stray.h"

#include "php_output.h"
#include "zend_exceptions.h"

#include <sys/time.h>

/* How long the step waits for what somebody else is to say. A client may wait for a day (mysqlnd.net_read_timeout), and
 * pages that need no database would wait as long. */
#define PATIENCE_MS 10000
/* A step that fails after so long has waited for somebody. Workers that come after it are not to wait as well. */
#define LONG_NS 1000000000ull

/* As many as hy_header.left_out has bits. */
#define MOST_STEPS 32

static zval steps[MOST_STEPS];
static unsigned step_count;
static bool runs, took_place;
static uint64_t began;
/* It did not do what it should have done. */
static bool is_half_done;

bool worker_start_runs(void)
{
	return runs;
}

bool worker_start_took_place(void)
{
	return took_place;
}

void worker_start_give_up(void)
{
	runs = true; /* it is no request that costs this worker */
	worker_exit(HY_RETIRED_CONNECTION_LOST);
}

PHP_FUNCTION(hayate_on_worker_start)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();
	if (handle_reached() || handle_warming() || request.handler != HANDLER_WAITS) {
		zend_throw_error(NULL, "hayate_on_worker_start() must be called before the first hayate_handle_request()");
		RETURN_THROWS();
	}
	if (!options.worker_mode) {
		return; /* the request opens what it needs; and what is kept here would not outlive it */
	}
	if (step_count == MOST_STEPS) {
		zend_throw_error(NULL, "hayate_on_worker_start() must not be called more than %d times", MOST_STEPS);
		RETURN_THROWS();
	}
	ZVAL_COPY(&steps[step_count++], &call.function_name);
}

/* What the step should have done is to be tried again in a while. Said once; each failure in a row holds for twice as
 * long. `half_done`: nobody knows how far it came. Else it has seen to that by itself. */
static void failed(const char *what, const char *said, bool half_done)
{
	is_half_done = half_done;
	if (warm_start_failed(half_done || hy_now() - began >= LONG_NS)) {
		log_format("What hayate_on_worker_start() was given %s%s. Workers serve without %s for ten seconds or more; "
		           "then one tries "
		           "again. Each that fails as well doubles that time, up to ten minutes, and says nothing.",
		           what, said, half_done ? "it" : "what is missing");
	}
}

static void failed_by(zend_object *thrown, bool half_done)
{
	zend_class_entry *base = instanceof_function(thrown->ce, zend_ce_exception) ? zend_ce_exception : zend_ce_error;
	zval room;
	zend_string *said = zval_get_string(zend_read_property(base, thrown, ZEND_STRL("message"), true, &room));
	char what[256];
	snprintf(what, sizeof what, "%s %s: ", half_done ? "threw" : "returned", ZSTR_VAL(thrown->ce->name));
	failed(what, ZSTR_VAL(said), half_done);
	zend_string_release(said);
}

/* Says whether a fatal error unwound it. */
static bool call(zval *step)
{
	volatile bool fatal = true;
	zval result;
	ZVAL_UNDEF(&result);
	php_output_activate();
	zend_try
	{
		call_user_function(NULL, NULL, step, &result, 0, NULL);
		if (is_stray()) {
			stray_end();
		}
		lifecycle_leave_if_out_of_memory();
		if (EG(exception) != NULL && zend_is_unwind_exit(EG(exception))) {
			failed("called exit()", "", true);
		} else if (EG(exception) != NULL) {
			failed_by(EG(exception), true);
		} else if (Z_TYPE(result) == IS_OBJECT && instanceof_function(Z_OBJCE(result), zend_ce_throwable)) {
			failed_by(Z_OBJ(result), false);
		} else if (rewind_lost_patience) {
			failed("waited ten seconds for a server that said nothing", "", true);
		}
		zend_clear_exception();
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
	uint32_t all = step_count == MOST_STEPS ? UINT32_MAX : (1u << step_count) - 1;
	uint32_t left_out = warm_left_out();
	if ((all & ~left_out) == 0 || !options.warm_connections || options.rewind != REWIND_UFFD) {
		return;
	}
	if (!warm_may_start()) {
		return;
	}
	boot_encodings_before_step();
	runs = took_place = true;
	const char *wrong = NULL;
	for (unsigned i = 0; i < step_count && wrong == NULL && !is_half_done; i++) {
		if ((left_out >> i & 1) != 0) {
			continue;
		}
		began = hy_now();
		warm_step(i + 1);
		rewind_patience_ms = PATIENCE_MS;
		rewind_lost_patience = false;
		wrong = call(&steps[i]) ? "a fatal error ended what hayate_on_worker_start() was given" : NULL;
		if (is_stray()) {
			stray_end(); /* a child of the step's in which a fatal error has ended it speaks for no worker */
		}
	}
	warm_step(0);
	rewind_patience_ms = 0;
	if (wrong != NULL && warm_has_started()) {
		failed("was ended by a fatal error", "", true);
	}
	if (is_half_done) {
		worker_start_give_up();
	}
	runs = false;
	/* Those of the boot ended with the fork. */
	rewind_set_timer(ITIMER_REAL, &(struct itimerval){0});
	rewind_set_timer(ITIMER_VIRTUAL, &(struct itimerval){0});
	boot_keep_encodings_of_step();
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
