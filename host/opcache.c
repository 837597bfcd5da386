/*
 * opcache and a SAPI that it does not know.
 *
 * opcache starts only under SAPI names on its list. PHP_SAPI is registered before modules start and zend extensions
 * start after them, so the name is lent to opcache in between, by an additional module's start-up, and taken back
 * afterwards.
 *
 * Processes that use opcache's shared memory hold a read lock on a file; fcntl locks do not pass through a fork, but
 * opcache's note that the lock is held does. A worker forked in the middle of a request takes the lock itself, or
 * opcache could restart its memory under it.
 *
 * opcache restarts its memory at the start of a PHP request that finds nobody using it. In worker mode there is no such
 * moment, and the booted application points into that memory. So opcache_reset() is taken for what it means: that the
 * application is to boot anew. The pool does that, with opcache memory of its own. The same when opcache itself wants
 * to restart because it is full: until then it would cache nothing more.
 *
 * opcache compares files' times with the time at which the request began, which it reads once for each PHP request.
 * Here that is once for all, so its clock is set by hand.
 */
#include "host.h"
#include "engine.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* A new boot because opcache is full: at most a twentieth of the time is spent with it, and not more often than every
 * so many seconds. */
#define RENEW_SHARE 20
#define RENEW_SECONDS 5
#define SECOND 1000000000ull

static time_t *accel_clock;
/* When the host started, and when the boot was over, in ns; when opcache was asked last how it fares. */
static uint64_t started_at, booted_at, asked_at_once, *asked_at = &asked_at_once;
static bool wants_restart;
static int lock_file = -1;
static zif_handler reset_handler;
static bool reset_called;
/* One of the processes has said that the application is to boot anew: the others serve until it has. */
static uint32_t *said;

static bool is_said(void)
{
	return said != NULL && __atomic_load_n(said, __ATOMIC_RELAXED) != 0;
}

static bool say(void)
{
	return said == NULL || __atomic_exchange_n(said, 1u, __ATOMIC_RELAXED) == 0;
}

static ZEND_FUNCTION(noted_opcache_reset)
{
	if (!handle_reached() || worker_start_runs() || hy_is_local(&request.exchange)) {
		/* A boot, or a page, that asks for it each time would have the application boot without end. What opcache has
		 * is of this boot: there is nothing older to forget. */
		RETURN_TRUE;
	}
	reset_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (Z_TYPE_P(return_value) == IS_TRUE) {
		say();
		/* Each counts: code may have changed since the boot began that the one before has asked for. */
		reset_called = true;
	}
}

bool opcache_reset_called(void)
{
	return reset_called;
}

/* The address of a setting in opcache's globals, which belong to nobody else: each of its settings knows it. */
static void *setting(const char *name)
{
	const zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), name, strlen(name));
	return entry == NULL || entry->mh_arg2 == NULL ? NULL : (char *)entry->mh_arg2 + (uintptr_t)entry->mh_arg1;
}

bool opcache_is_on(void)
{
	const bool *enabled = setting("opcache.enable");
	return enabled != NULL && *enabled;
}

void opcache_find_clock(time_t boot)
{
	booted_at = hy_now();
	char **last = setting("opcache.preload_user");
	if (!opcache_is_on() || last == NULL) {
		return;
	}
	struct engine_opcache_tail *tail = (struct engine_opcache_tail *)(void *)(last + 1);
	if (tail->request_time == boot) {
		accel_clock = &tail->request_time;
	} else if (tail->request_time != 0) {
		log_format("OPcache is not as expected: its clock stays at the time of the boot, so that it does not see "
		           "changed files.");
	}
}

void opcache_set_clock(time_t now)
{
	/* For good: a page that is written once a second need not be put back after each request. */
	if (accel_clock != NULL && *accel_clock != now) {
		rewind_amend(accel_clock, &now, sizeof now);
	}
}

const char *opcache_keep(void)
{
	uint64_t *kept = rewind_keep(sizeof *kept);
	if (kept == NULL) {
		return "no memory for the rewinder";
	}
	asked_at = kept;
	return NULL;
}

/* What opcache_get_status() says of itself, whatever opcache.restrict_api says. */
static bool restart_pending(void)
{
	zend_function *status = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("opcache_get_status"));
	if (status == NULL) {
		return false;
	}
	char **restricted = setting("opcache.restrict_api"), *none = NULL, **to = restricted == NULL ? &none : restricted;
	char *restriction = *to;
	zval result, scripts;
	ZVAL_FALSE(&scripts);
	ZVAL_UNDEF(&result);
	*to = NULL;
	zend_call_known_function(status, NULL, NULL, &result, 1, &scripts, NULL);
	*to = restriction;
	const zval *pending =
	    Z_TYPE(result) != IS_ARRAY ? NULL : zend_hash_str_find(Z_ARRVAL(result), ZEND_STRL("restart_pending"));
	bool is = pending != NULL && Z_TYPE_P(pending) == IS_TRUE;
	zval_ptr_dtor(&result);
	return is;
}

bool opcache_wants_restart(void)
{
	uint64_t now = hy_now();
	if (accel_clock == NULL || wants_restart || is_said() || now - *asked_at < SECOND) {
		return wants_restart;
	}
	*asked_at = now;
	if (now - booted_at < MAX(RENEW_SECONDS * SECOND, (booted_at - started_at) * RENEW_SHARE) || !restart_pending() ||
	    !say()) {
		return false;
	}
	log_format("OPcache is full and caches nothing more, so the application boots anew. To avoid it: raise "
	           "opcache.memory_consumption, opcache.max_accelerated_files or opcache.interned_strings_buffer; do not "
	           "change scripts that are in use.");
	return wants_restart = true;
}

void opcache_before_startup(void)
{
	started_at = hy_now();
	sapi_module.name = "fpm-fcgi";
}

void opcache_after_startup(void)
{
	sapi_module.name = HAYATE_SAPI_NAME;
	zend_function *reset = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("opcache_reset"));
	if (options.worker_mode && reset != NULL && reset->type == ZEND_INTERNAL_FUNCTION) {
		reset_handler = reset->internal_function.handler;
		reset->internal_function.handler = ZEND_FN(noted_opcache_reset);
	}
	void *shared = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	said = shared == MAP_FAILED ? NULL : shared;
	DIR *fds = opendir("/proc/self/fd");
	if (fds == NULL) {
		return;
	}
	const struct dirent *entry;
	while ((entry = readdir(fds)) != NULL) {
		char path[64], target[256];
		snprintf(path, sizeof path, "/proc/self/fd/%.16s", entry->d_name);
		ssize_t n = readlink(path, target, sizeof target - 1);
		if (n > 0) {
			target[n] = '\0';
			/* SEM_FILENAME_PREFIX in ext/opcache/zend_shared_alloc.c */
			if (strstr(target, "/.ZendSem.") != NULL || strstr(target, "opcache_lock") != NULL) {
				lock_file = atoi(entry->d_name);
			}
		}
	}
	closedir(fds);
}

void opcache_after_fork(void)
{
	if (lock_file >= 0) {
		/* mem_usage_lock in ext/opcache/ZendAccelerator.c: one byte at 1, shared. */
		struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};
		fcntl(lock_file, F_SETLK, &lock);
	}
}

void opcache_after_bailout(void)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("zend opcache"));
	if (module != NULL && module->post_deactivate_func != NULL) {
		module->post_deactivate_func();
		opcache_after_fork(); /* that gave back the lock of the whole process, too */
	}
}
