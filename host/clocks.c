/*
 * What PHP and its extensions keep of the time at which a request began, and what they keep for a time. A boot happens
 * once, so all of it would stand at the boot's time; here it is brought up to date for each request.
 *
 *   opcache's clock       set for each request (opcache.c)
 *   APCu's clock          forgotten before each request; APCu then asks for the request's time
 *   cache of real paths   entries of the boot whose time is nearly over are resolved once more; those that hold get new
 *                         time, in the snapshot as well. Others run out, as under php-fpm. Those below /proc are
 *                         forgotten: /proc/self was another process before the fork
 *   cache of stat()       emptied with the boot
 *   a front controller's constant of when it began (LARAVEL_START)   set for each request; its boot script names it
 *
 * Everything else in PHP 8.2 asks the kernel, or SG(global_request_time), which sapi_activate() forgets.
 *
 * Promised: a real path is never believed for longer than realpath_cache_ttl without having been looked at.
 */
#include "host.h"

#include "ext/standard/php_filestat.h"
#include "zend_constants.h"
#include "zend_virtual_cwd.h"

#include <sys/stat.h>
#include <time.h>

/* How many real paths are looked at between two requests: a few microseconds each. */
#define PATHS_AT_ONCE 2048

/* Where the next look at real paths begins, and when. A rewind leaves it alone. */
static struct paths {
	time_t next_look;
	zend_long list;
} paths_without_rewind, *paths = &paths_without_rewind;
static zend_long path_ttl;
static time_t *apcu_clock;
/* The value of such a constant; NULL: there is none. */
static zval *began;

/* APCG(request_time), which follows APCG(use_request_time) in apc_globals.h; the setting says where that is. */
static void find_apcu_clock(time_t boot)
{
	const zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), ZEND_STRL("apc.use_request_time"));
	if (entry == NULL || entry->mh_arg2 == NULL) {
		return;
	}
	uintptr_t after = (uintptr_t)entry->mh_arg2 + (uintptr_t)entry->mh_arg1 + sizeof(bool);
	time_t *found = (time_t *)((after + sizeof(time_t) - 1) & ~(sizeof(time_t) - 1));
	if (*found == 0 || *found == boot) {
		apcu_clock = found;
	}
}

void clocks_boot_over(void)
{
	time_t boot = (time_t)sapi_get_request_time();
	php_clear_stat_cache(0, NULL, 0);
	opcache_find_clock(boot);
	find_apcu_clock(boot);
	path_ttl = INI_INT("realpath_cache_ttl");
	paths->next_look = boot;
}

const char *clocks_keep(void)
{
	struct paths *kept = rewind_keep(sizeof *kept);
	if (kept == NULL) {
		return "no memory for the rewinder";
	}
	*kept = *paths;
	paths = kept;
	return NULL;
}

void clocks_request_begins(void)
{
	/* Not time(), which may still say the second before. */
	opcache_set_clock((time_t)sapi_get_request_time());
	if (apcu_clock != NULL && *apcu_clock != 0) {
		*apcu_clock = 0;
	}
	if (began != NULL) {
		ZVAL_DOUBLE(began, SG(global_request_time));
	}
}

/* began(string $constant): void: a constant of PHP code's that says in seconds when the request began. */
static PHP_FUNCTION(began)
{
	zend_string *name;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_STR(name)
	ZEND_PARSE_PARAMETERS_END();
	zend_constant *constant = zend_hash_find_ptr(EG(zend_constants), name);
	if (constant != NULL && Z_TYPE(constant->value) == IS_DOUBLE && !handle_reached()) {
		began = &constant->value;
		/* Code would have the boot's. */
		CG(compiler_options) |= ZEND_COMPILE_NO_CONSTANT_SUBSTITUTION;
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_began, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, constant, IS_STRING, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry of_boot_scripts[] = {ZEND_NS_FE("Hayate\\Boot", began, arginfo_began) ZEND_FE_END};

void clocks_startup(void)
{
	if (options_is_project()) {
		functions_of_boot_scripts(of_boot_scripts);
	}
}

/* Whether a path still is what the cache says. */
static bool holds(const realpath_cache_bucket *bucket)
{
	char resolved[PATH_MAX];
	struct stat st;
	return realpath(bucket->path, resolved) != NULL && strcmp(resolved, bucket->realpath) == 0 &&
	       lstat(resolved, &st) == 0 && S_ISDIR(st.st_mode) == bucket->is_dir;
}

/* The kernel says which process asks: what was looked up before a fork names the one before it. */
void clocks_forget_process(void)
{
	realpath_cache_bucket **lists = realpath_cache_get_buckets();
	for (zend_long i = 0; i < realpath_cache_max_buckets(); i++) {
		for (realpath_cache_bucket *bucket = lists[i], *next; bucket != NULL; bucket = next) {
			next = bucket->next;
			if (strncmp(bucket->realpath, "/proc/", strlen("/proc/")) == 0) {
				realpath_cache_del(bucket->path, bucket->path_len);
			}
		}
	}
}

void clocks_between_requests(void)
{
	/* A time of 0 means that entries are kept for ever. A look that is further away than any is of a clock that was set
	 * back since. */
	time_t now = time(NULL), pause = MAX(path_ttl / 4, 1);
	if (path_ttl <= 0 || (now < paths->next_look && paths->next_look <= now + pause)) {
		return;
	}
	realpath_cache_bucket **lists = realpath_cache_get_buckets();
	zend_long count = realpath_cache_max_buckets();
	for (size_t looked = 0; paths->list < count && looked < PATHS_AT_ONCE; paths->list++) {
		for (realpath_cache_bucket *bucket = lists[paths->list]; bucket != NULL; bucket = bucket->next) {
			const bool ahead = bucket->expires > now + path_ttl;
			if (bucket->expires > now + path_ttl / 2 && !ahead) {
				continue;
			}
			looked++;
			const bool still = holds(bucket);
			if (still || ahead) {
				time_t expires = still ? now + path_ttl : now - 1;
				rewind_amend(&bucket->expires, &expires, sizeof expires);
			}
		}
	}
	if (paths->list >= count) {
		paths->list = 0;
		paths->next_look = now + pause;
	}
}
