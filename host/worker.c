/* A worker's life: the loop of classic mode, the boot of worker mode, when to retire, and the end. */
#include "host.h"
#include "explain.h"
#include "stray.h"

#include "php_main.h"
#include "zend_stream.h"

#include <fcntl.h>
#include <unistd.h>

/* What the kernel says of this process. Both are opened at the point at the latest: requests open nothing. Nothing here
 * scans by scanf(), which writes to pages that a request would not. */
static int statm = -1, rollup = -1;

static void read_again(int file, char *text, size_t size)
{
	ssize_t n = pread(file, text, size - 1, 0);
	text[n > 0 ? n : 0] = '\0';
}

/* Resident bytes that are of no file: /proc/self/statm, in pages. */
static uint64_t not_of_files(void)
{
	char text[128];
	read_again(statm, text, sizeof text);
	/* The second and the third number. */
	char *at = strchr(text, ' ');
	unsigned long resident = at == NULL ? 0 : strtoul(at, &at, 10);
	unsigned long shared = at == NULL ? 0 : strtoul(at, NULL, 10);
	return resident < shared ? 0 : (uint64_t)(resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t field(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	return at == NULL ? 0 : (uint64_t)strtoul(at + strlen(name), NULL, 10) << 10;
}

/* Bytes that this process shares with no other: /proc/self/smaps_rollup, in kB. `most` where that cannot be read. */
static uint64_t private_memory(uint64_t most)
{
	char text[2048];
	read_again(rollup, text, sizeof text);
	uint64_t own = field(text, "\nPrivate_Clean:") + field(text, "\nPrivate_Dirty:");
	return own == 0 ? most : own;
}

/*
 * Whether this process holds more for itself than it may. What is of no file is read at once, and is the most that can
 * be its own. Pages of the boot are among it that it shares with the other workers: only the kernel tells them apart,
 * by walking all of them, a millisecond for 100 MB. So that is asked only where it matters, and again when there is
 * more than it had room for; now and then as well, for what is written to becomes its own.
 */
static bool holds_too_much(struct hy_worker *record)
{
	if (statm < 0) {
		statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
		rollup = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
		rewind_positionless(statm, true);
		rewind_positionless(rollup, true);
	}
	uint64_t most = not_of_files();
	/* Whatever it holds after its boot, it serves a request. */
	if (record->requests == 0 || most <= options.max_memory) {
		return false;
	}
	if (most <= record->fits_below && (record->requests & 127) != 0) {
		return false;
	}
	uint64_t own = private_memory(most);
	if (own > options.max_memory) {
		return true;
	}
	record->fits_below = most + (options.max_memory - own);
	return false;
}

enum hy_retired worker_after_request(void)
{
	struct hy_worker *record = hy_ring_record();
	uint64_t served = record->requests;
	if (options.max_memory != 0 && holds_too_much(record)) {
		return HY_RETIRED_MAX_MEMORY;
	}
	/* Not before the point: asking takes memory. */
	if (opcache_reset_called() || (options.worker_mode && served > 0 && opcache_wants_restart())) {
		return HY_RETIRED_REWIND_OPCACHE;
	}
	if (options.max_requests != 0 && served >= options.max_requests) {
		return HY_RETIRED_MAX_REQUESTS;
	}
	return hy_ring_quit() ? HY_RETIRED_ASKED : HY_RETIRED_NOT;
}

void worker_exit(enum hy_retired why)
{
	if (is_stray()) {
		stray_end();
	}
	__atomic_store_n(&hy_ring_record()->retired, (uint32_t)why, __ATOMIC_RELAXED);
	hy_ring_state(HY_WORKER_RETIRING);
	explain_retires(why);
	warm_leave();
	/* Persistent connections are closed politely. The rest of PHP's shutdown is for a process that goes on. */
	zend_try
	{
		zend_hash_graceful_reverse_destroy(&EG(persistent_list));
	}
	zend_end_try();
	boot_files_remove();
	_exit(0);
}

/* Several sites may share this pool: what is relative in destructors and the like must not lie in another one's
 * directory. */
static void enter_site(void)
{
	static bool has_others;
	const char *root = request.field[HY_FIELD_DOCUMENT_ROOT].at;
	bool is_own = options.document_root == NULL || strcmp(root, options.document_root) == 0;
	has_others |= !is_own;
	if (!has_others) {
		return;
	}
	const char *place = is_own && options.cwd != NULL ? options.cwd : root;
	if (chdir(place) != 0 && chdir("/") != 0) {
		log_own("a request runs in the directory of the one before: neither its own nor / can be entered");
	}
}

void worker_serve_classic(void)
{
	request_begin();
	enter_site();
	if (php_request_startup() == SUCCESS) {
		zend_file_handle file;
		zend_stream_init_filename(&file, request.field[HY_FIELD_SCRIPT_FILENAME].at);
		file.primary_script = 1;
		opening_begin(&file);
		zend_try
		{
			php_execute_script(&file);
		}
		zend_end_try();
		opening_end();
		if (is_stray()) {
			stray_end();
		}
		zend_destroy_file_handle(&file);
	}
	zend_try
	{
		php_request_shutdown(NULL);
	}
	zend_end_try();
	output_finish(true);
	request_end();
}

void worker_classic(void)
{
	enum hy_retired why = HY_RETIRED_NOT;
	while (why == HY_RETIRED_NOT && hy_ring_next(&request.exchange)) {
		worker_serve_classic();
		why = worker_after_request();
	}
	worker_exit(why == HY_RETIRED_NOT ? HY_RETIRED_ASKED : why);
}

/* Hayate's own boot script for a recognised framework lies outside the application, and so outside its open_basedir. */
static void allow_boot_script(void)
{
	const char *slash = strrchr(options.worker_script, '/');
	if (options_env("HAYATE_PROJECT") == NULL || slash == NULL || PG(open_basedir) == NULL ||
	    PG(open_basedir)[0] == '\0') {
		return;
	}
	zend_string *name = zend_string_init(ZEND_STRL("open_basedir"), false);
	zend_string *value =
	    zend_strpprintf(0, "%s:%.*s", PG(open_basedir), (int)(slash - options.worker_script), options.worker_script);
	zend_alter_ini_entry(name, value, ZEND_INI_SYSTEM, ZEND_INI_STAGE_ACTIVATE);
	zend_string_release(value);
	zend_string_release(name);
}

static zend_file_handle script;
static bool script_open;

/* It has been compiled. A file that is open has a position, which each rewind would put back. */
void worker_close_script(void)
{
	if (script_open) {
		script_open = false;
		zend_destroy_file_handle(&script);
	}
}

/* Whether a fatal error unwound it. */
static bool run_script(void)
{
	volatile bool fatal = true;
	zend_stream_init_filename(&script, options.worker_script);
	script.primary_script = 1;
	script_open = true;
	zend_try
	{
		php_execute_script(&script);
		fatal = EG(exit_status) == 255;
	}
	zend_end_try();
	return fatal;
}

/* What PHP said last, with its place, which an exception's text has already; NULL: nothing. */
static const char *last_error(char *to, size_t size)
{
	if (PG(last_error_message) == NULL) {
		return NULL;
	}
	const char *message = ZSTR_VAL(PG(last_error_message));
	const char *file = PG(last_error_file) != NULL ? ZSTR_VAL(PG(last_error_file)) : "";
	if (*file == '\0' || strstr(message, file) != NULL) {
		snprintf(to, size, "%s", message);
	} else {
		snprintf(to, size, "%.500s in %s:%d", message, file, PG(last_error_lineno));
	}
	return to;
}

/*
 * Runs the worker script. It comes back here in three ways: the script returned, it was unwound by a fatal error in a
 * request, or it never reached hayate_handle_request(). A request that is still open then is ended by PHP's own request
 * shutdown, so that shutdown functions, destructors and sessions have their say and the client gets its answer.
 */
void worker_boot(void)
{
	if (compare_keep_classic(&request.exchange)) {
		worker_serve_classic();
		if (EG(exit_status) == 255) {
			compare_failed(); /* as PHP exits after a fatal error, which an exception that nobody catches is as well */
		}
		_exit(0);
	}
	SG(request_info).path_translated = (char *)options.worker_script;
	SG(request_info).request_method = NULL;
	if (boot_start_php() == FAILURE) {
		zygote_failed("PHP could not start the request in which the worker script runs");
	}
	allow_boot_script();
	errors_of_boot();
	/* A boot may take as long as it needs; requests have their own time. */
	time_limit_start();
	explain_boot_begins();
	bool fatal = run_script();
	if (is_stray()) {
		stray_end();
	}
	if (!handle_reached()) {
		char why[1536], text[768];
		const char *said = last_error(text, sizeof text);
		if (handle_warming()) {
			snprintf(why, sizeof why, "a warm-up request ended the worker script%s%s", said ? ": " : "",
			         said ? said : "");
			warmup_failed(why, fatal);
		}
		decline_failed_boot(said, fatal);
		snprintf(why, sizeof why, "the worker script %s ended before its first hayate_handle_request()%s%s%s%s",
		         options.worker_script, said ? ": " : "", said ? said : "",
		         said ? "" : "; it must call hayate_handle_request($handler) in a loop",
		         options_is_project() && options.warmup_count == 0
		             ? ". If it wants a request, say mode = \"classic\", or name a page that shows it: warmup = [\"/\"]"
		             : "");
		zygote_failed(why);
	}
	if (options.rewind != REWIND_OFF && !handle_leaving()) {
		handle_script_over(fatal);
	}
	enum hy_retired why = hy_ring_quit() ? HY_RETIRED_ASKED : fatal ? HY_RETIRED_FATAL : HY_RETIRED_SCRIPT_ENDED;
	if (why == HY_RETIRED_FATAL) {
		char text[768];
		const char *said = last_error(text, sizeof text);
		log_format("The worker script was unwound by a fatal error (%s); this worker is replaced.",
		           said != NULL ? said : "without a message");
	}
	enum hy_retired limit = worker_after_request();
	if (why == HY_RETIRED_SCRIPT_ENDED && limit != HY_RETIRED_NOT) {
		why = limit;
	}
	zend_try
	{
		php_request_shutdown(NULL);
	}
	zend_end_try();
	if (request.exchange.slot != NULL) {
		output_finish(true);
	}
	worker_exit(why);
}
