/*
 * The beginning and the end of a request in worker mode: what php_request_startup() and php_request_shutdown() do, in
 * their order, as far as it applies to a process that goes on.
 *
 * A bail-out in a step ends that step only, and is remembered: the engine was unwound at a place where it usually ends,
 * so the worker must be rewound or leave (lifecycle_failed()).
 */
#include "host.h"
#include "explain.h"

#include "ext/standard/basic_functions.h"
#include "ext/standard/php_filestat.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "zend_exceptions.h"

static bool in_request EACH_REQUEST;
/* The step in which a bail-out was caught, NULL: in none. */
static const char *failed EACH_REQUEST;
/* The step of cleanup.c in which that happened, NULL: in none. */
static const char *unclean EACH_REQUEST;

/* The request left a connection that is kept in the middle of something. */
static bool left_connection EACH_REQUEST;

bool lifecycle_left_connection(void)
{
	return left_connection;
}

bool lifecycle_in_request(void)
{
	return in_request;
}

const char *lifecycle_failed(void)
{
	return failed;
}

const char *lifecycle_unclean(void)
{
	return unclean;
}

/* One step of the end of a request. A bail-out ends the step, and after the request the worker. */
void lifecycle_step(const char *name, void (*run)(void))
{
	zend_try
	{
		run();
		lifecycle_leave_if_out_of_memory();
	}
	zend_catch
	{
		failed = name;
	}
	zend_end_try();
}
#define step(run) LIFECYCLE_STEP(run)

/*
 * Extensions that keep per-request state of their own and are safe to take through request shutdown and startup while
 * everything else lives on. In the order of startup.
 */
static const char *const per_request_modules[] = {"zlib", "mbstring", "filter", "session"};
#define PER_REQUEST_MODULES ((int)(sizeof per_request_modules / sizeof per_request_modules[0]))
/* The entries of those that are there; modules come and go with the process. */
static const zend_module_entry *per_request[PER_REQUEST_MODULES];
static bool looked_for_modules;

static const zend_module_entry *find_module(const char *name)
{
	return zend_hash_str_find_ptr(&module_registry, name, strlen(name));
}

static const zend_module_entry *per_request_module(int i)
{
	if (!looked_for_modules) {
		for (int j = 0; j < PER_REQUEST_MODULES; j++) {
			per_request[j] = find_module(per_request_modules[j]);
		}
		looked_for_modules = true;
	}
	return per_request[i];
}

static void start_or_stop(const zend_module_entry *module, bool startup)
{
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
		failed = module->name;
	}
	zend_end_try();
}

void lifecycle_module(const char *name, bool startup)
{
	start_or_stop(find_module(name), startup);
}

static bool is_session(int i)
{
	return strcmp(per_request_modules[i], "session") == 0;
}

/*
 * Under rewinding all but sessions are started once, ahead of the snapshot: what that does is the same for each
 * request, and what their shutdown does is putting back memory. A request whose output zlib compresses is another
 * matter.
 */
static bool started_ahead;

static void start_or_stop_ahead(bool startup)
{
	for (int i = 0; i < PER_REQUEST_MODULES; i++) {
		if (!is_session(i)) {
			start_or_stop(per_request_module(i), startup);
		}
	}
}

void lifecycle_start_ahead(void)
{
	/* As zlib reads it. */
	const char *compression = zend_ini_string("zlib.output_compression", strlen("zlib.output_compression"), 0);
	if (compression != NULL && strcasecmp(compression, "off") != 0 &&
	    (strcasecmp(compression, "on") == 0 || atoi(compression) != 0)) {
		return;
	}
	if (started_ahead) {
		start_or_stop_ahead(false);
	}
	start_or_stop_ahead(true);
	boot_restore_encodings();
	started_ahead = true;
}

static void start_modules(void)
{
	for (int i = 0; i < PER_REQUEST_MODULES; i++) {
		if (!started_ahead || is_session(i)) {
			start_or_stop(per_request_module(i), true);
		}
	}
	if (!started_ahead) {
		boot_restore_encodings();
	}
}

void lifecycle_shut_modules_down(void)
{
	for (int i = PER_REQUEST_MODULES - 1; i >= 0; i--) {
		if (!started_ahead || is_session(i)) {
			start_or_stop(per_request_module(i), false);
		}
	}
	boot_restore_session_handlers();
}

static const char *const lazy_superglobals[] = {"_SERVER", "_ENV", "_REQUEST"};
static const char *const eager_superglobals[] = {"_GET", "_POST", "_COOKIE", "_FILES"};
#define LAZY_SUPERGLOBALS ((int)(sizeof lazy_superglobals / sizeof lazy_superglobals[0]))
#define EAGER_SUPERGLOBALS ((int)(sizeof eager_superglobals / sizeof eager_superglobals[0]))

/*
 * Where the superglobals of the boot are, if to free them is nothing but work: it writes to all the pages on which they
 * lie, and each of those is to be put back. With the memory they come back in any case. A request begins with the very
 * memory of the point, so that the places hold.
 */
static zval *boot_superglobals[LAZY_SUPERGLOBALS + EAGER_SUPERGLOBALS + NUM_TRACK_VARS];
static int boot_superglobal_count;

/* Nothing that runs code when it is freed, or that anybody else can see change. */
static bool is_plain(const zval *value, int depth)
{
	if (Z_TYPE_P(value) != IS_ARRAY) {
		return Z_TYPE_P(value) <= IS_STRING;
	}
	zval *element;
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), element)
	{
		if (depth == 0 || !is_plain(element, depth - 1)) {
			return false;
		}
	}
	ZEND_HASH_FOREACH_END();
	return true;
}

static void note_superglobal(zval *value)
{
	if (value != NULL && Z_TYPE_P(value) == IS_ARRAY && is_plain(value, 8)) {
		boot_superglobals[boot_superglobal_count++] = value;
	}
}

static void note_superglobals(const char *const *names, int count)
{
	for (int i = 0; i < count; i++) {
		note_superglobal(zend_hash_str_find(&EG(symbol_table), names[i], strlen(names[i])));
	}
}

void lifecycle_note_superglobals(void)
{
	boot_superglobal_count = 0;
	note_superglobals(lazy_superglobals, LAZY_SUPERGLOBALS);
	note_superglobals(eager_superglobals, EAGER_SUPERGLOBALS);
	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		note_superglobal(&PG(http_globals)[i]);
	}
}

static void drop_superglobals(void)
{
	for (int i = 0; i < boot_superglobal_count; i++) {
		ZVAL_NULL(boot_superglobals[i]);
	}
	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		zval_ptr_dtor(&PG(http_globals)[i]);
		ZVAL_UNDEF(&PG(http_globals)[i]);
	}
}

/* These lie scattered over malloc's memory: where what is written is what was there, a page need not be put back. */
static void arm(zend_auto_global *global, bool armed)
{
	if (global->armed != armed) {
		global->armed = armed;
	}
}

/*
 * php_hash_environment(), with a difference. Auto globals are built while a script that names them is compiled, and the
 * scripts of a worker are compiled once. So those that any script has asked for so far are built anew for each request;
 * the others stay as cheap as PHP makes them.
 */
static void import_superglobals(void)
{
	zend_auto_global *wanted[LAZY_SUPERGLOBALS], *global;
	for (int i = 0; i < LAZY_SUPERGLOBALS; i++) {
		const char *name = lazy_superglobals[i];
		global = zend_hash_str_find_ptr(CG(auto_globals), name, strlen(name));
		wanted[i] = global != NULL && global->jit && !global->armed ? global : NULL;
		if (global != NULL && global->jit) {
			zend_hash_str_del(&EG(symbol_table), name, strlen(name));
		}
	}
	memset(PG(http_globals), 0, sizeof PG(http_globals));
	ZEND_HASH_MAP_FOREACH_PTR(CG(auto_globals), global)
	{
		if (!global->jit) {
			arm(global, global->auto_global_callback != NULL && global->auto_global_callback(global->name));
		} else if (global != wanted[0] && global != wanted[1] && global != wanted[2]) {
			arm(global, true);
		}
	}
	ZEND_HASH_FOREACH_END();
	if (PG(register_argc_argv)) {
		php_build_argv(SG(request_info).query_string, &PG(http_globals)[TRACK_VARS_SERVER]);
	}
	for (int i = 0; i < LAZY_SUPERGLOBALS; i++) {
		if (wanted[i] != NULL) {
			arm(wanted[i], wanted[i]->auto_global_callback(wanted[i]->name));
		}
	}
}

/* $_SESSION as the boot has set it; undefined: it has not. */
static zval session_of_boot;
/* The constant SID, if it is one of the boot's own. */
static zval session_id_of_boot;

void lifecycle_note_session(void)
{
	const zend_constant *id = zend_hash_str_find_ptr(EG(zend_constants), ZEND_STRL("SID"));
	if (id != NULL && ZEND_CONSTANT_MODULE_NUMBER(id) == PHP_USER_CONSTANT && Z_TYPE(id->value) <= IS_STRING) {
		ZVAL_COPY(&session_id_of_boot, &id->value);
	}
	zval *value = zend_hash_str_find(&EG(symbol_table), ZEND_STRL("_SESSION"));
	if (value == NULL) {
		return;
	}
	ZVAL_DEREF(value);
	if (Z_TYPE_P(value) == IS_ARRAY && is_plain(value, 8)) {
		ZVAL_COPY(&session_of_boot, value);
	}
}

/* As the session module makes it: the session's name, and its id. */
static bool is_session_id(const zval *value)
{
	const char *name = zend_ini_string("session.name", strlen("session.name"), 0);
	size_t len = name == NULL ? 0 : strlen(name);
	return Z_TYPE_P(value) == IS_STRING && len > 0 && Z_STRLEN_P(value) > len && Z_STRVAL_P(value)[len] == '=' &&
	       memcmp(Z_STRVAL_P(value), name, len) == 0;
}

/*
 * PHP's session module gives up what it knows of a session, but neither the variable nor the constant: those go with
 * the symbol table, which lives on here. Whoever has no session would find another visitor's.
 */
static void forget_session(void)
{
	if (Z_ISUNDEF(session_of_boot)) {
		zend_hash_str_del(&EG(symbol_table), ZEND_STRL("_SESSION"));
	} else {
		zval value;
		ZVAL_COPY(&value, &session_of_boot);
		zend_hash_str_update(&EG(symbol_table), ZEND_STRL("_SESSION"), &value);
	}
	/* It stays: compiled code remembers where it is. */
	zend_constant *id = zend_hash_str_find_ptr(EG(zend_constants), ZEND_STRL("SID"));
	bool own = id != NULL && ZEND_CONSTANT_MODULE_NUMBER(id) == PHP_USER_CONSTANT;
	if (id != NULL && (!own || (Z_ISUNDEF(session_id_of_boot) && is_session_id(&id->value)))) {
		zval_ptr_dtor(&id->value);
		ZVAL_EMPTY_STRING(&id->value);
	} else if (id != NULL && !Z_ISUNDEF(session_id_of_boot)) {
		/* One of the application's own: the session module writes to it as well. */
		zval_ptr_dtor(&id->value);
		ZVAL_COPY(&id->value, &session_id_of_boot);
	}
	/* Of a destructor. */
	lifecycle_settle_exception();
}

/* Who follows the headers by himself forgets them at a script's end otherwise: Xdebug, whose list would grow by each
 * request's, and which looks through all of it for a header that takes another's place. */
static void forget_headers(void)
{
	sapi_header_struct none = {0};
	sapi_module.header_handler(&none, SAPI_HEADER_DELETE_ALL, &SG(sapi_headers));
}

void lifecycle_begin(void)
{
	struct timeval came; /* it may have to wait for locks */
	gettimeofday(&came, NULL);
	in_request = true;
	if (!handle_rewinds()) {
		step(boot_forget_sessions);
	}
	if (handle_warming() && options.rewind != REWIND_OFF) {
		decline_lost_locks();
		boot_files_note(); /* the request before may have closed some */
	}
	if (options.rewind != REWIND_OFF) {
		boot_files_look(BOOT_FILES_LOCKED);
		locks_take();
		boot_files_look(BOOT_FILES_UNLOCKED);
	}
	if (handle_rewinds()) {
		boot_files_renew();
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
	forget_headers();
	SG(global_request_time) = (double)came.tv_sec + (double)came.tv_usec / 1e6;
	clocks_request_begins();
	time_limit_begin();
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

/*
 * What the request acquired is given up before its answer is complete, as under php-fpm: who has the answer, and asks
 * again, finds its locks free and its rows stored.
 */
void lifecycle_clean_up(bool unwound)
{
	uint64_t started = hy_now();
	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	/* Settings are put back with the memory. A request that has come to its limit still has room to release what it
	 * acquired, and so much more is enough for what that runs of its own: stream filters, wrappers. */
	if (PG(memory_limit) >= 0) {
		zend_set_memory_limit(zend_memory_usage(true) + (size_t)PG(memory_limit));
	}
	/* A bail-out while the request was being ended left only memory behind, which is put back whole. */
	unclean = cleanup_request(unwound || failed != NULL);
	left_connection = !warm_request_over();
	rewind_unlock();
	hy_ring_record()->clean_ns += hy_now() - started;
}

/* In the order of php_request_shutdown(), as far as it applies to a process that goes on. `unwound`: by a fatal error.
 */
void lifecycle_end(bool unwound)
{
	explain_handler_over();
	/* A fatal error that an extension has caught (SoapClient makes an exception of one): what it stopped is over. */
	if (!handle_rewinds() && CG(unclean_shutdown) && failed == NULL) {
		gc_protect(false);
		CG(unclean_shutdown) = false;
	}
	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	step(shutdown_run);
	if (handle_rewinds()) {
		explain_destructors_begin();
		rewind_request_ends();
		snapshot_hold();
		destructors_call();
		explain_destructors_over();
	}
	step(php_output_end_all);
	step(time_limit_end);
	if (!handle_rewinds()) {
		step(boot_note_living_sessions);
	}
	lifecycle_shut_modules_down();
	if (handle_warming() && options.rewind != REWIND_OFF) {
		archives_forget();
	}
	if (!handle_rewinds()) {
		step(boot_keep_living_sessions);
		step(forget_session);
	}
	step(php_output_deactivate);
	if (!handle_rewinds()) {
		/* It has freed the list of buffers, and code behind the handler may begin one. */
		zend_stack_init(&OG(handlers), sizeof(php_output_handler *));
		step(php_free_shutdown_functions);
	}
	if (SG(request_info).request_body != NULL) {
		zend_list_delete(SG(request_info).request_body->res);
		SG(request_info).request_body = NULL;
	}
	if (handle_rewinds()) {
		lifecycle_clean_up(unwound);
	}
	output_finish(false);
	step(sapi_deactivate);
	if (!handle_rewinds()) {
		boot_keep_session_settings();
		step(zend_ini_deactivate);
	}
	php_clear_stat_cache(0, NULL, 0);
	if (PG(last_error_message) != NULL) {
		zend_string_release(PG(last_error_message));
		PG(last_error_message) = NULL;
	}
	EG(flags) &= ~EG_FLAGS_IN_SHUTDOWN;
	if (!handle_rewinds()) {
		/* PHP has caught it by itself, and the collector of cycles does nothing any more. */
		if (CG(unclean_shutdown) && failed == NULL) {
			failed = "a shutdown function, a destructor or a session";
		}
	}
	in_request = false;
	hy_release(&request.exchange);
	request_end();
}

/*
 * The boot's buffers, destructors of what it has thrown away and the like run code outside of any request. What that
 * throws nobody catches, and a snapshot would have each request begin with it: none would ever run. It is reported, and
 * over; memory that has run out ends the boot.
 */
void lifecycle_settle_outside(void)
{
	lifecycle_leave_if_out_of_memory();
	if (EG(exception) != NULL && !zend_is_unwind_exit(EG(exception))) {
		zval handler; /* which might throw once more */
		ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
		ZVAL_UNDEF(&EG(user_error_handler));
		zend_exception_error(EG(exception), E_WARNING);
		ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
	}
	zend_clear_exception();
}

void lifecycle_collect_outside(void)
{
	lifecycle_settle_outside();
	gc_collect_cycles();
	lifecycle_settle_outside();
}

/* exit() ended the request; an exception that nobody caught is reported as PHP does at the end of a script. */
void lifecycle_settle_exception(void)
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

void lifecycle_forget_out_of_memory(void)
{
#ifdef ZEND_HAS_OOM
	if (ZEND_HAS_OOM()) {
		if (EG(exception) != NULL) {
			zend_clear_exception();
		}
		/* Else shutdown functions would not be called. */
		memset(&EG(delayed_oom), 0, sizeof EG(delayed_oom));
	}
#endif
}

/*
 * Late 8.2 releases report exhausted memory and then unwind the stack with a pseudo-exception instead of a bail-out. It
 * looks like exit() but is a fatal error, and leaves the engine in a state that only the end of the script clears.
 */
void lifecycle_leave_if_out_of_memory(void)
{
#ifdef ZEND_HAS_OOM
	if (ZEND_HAS_OOM()) {
		lifecycle_forget_out_of_memory();
		if (!SG(headers_sent) && !PG(display_errors) && SG(sapi_headers).http_response_code == 200) {
			SG(sapi_headers).http_response_code = 500;
		}
		EG(exit_status) = 255;
		zend_bailout();
	}
#endif
}
