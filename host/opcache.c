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
 * application is to boot anew. The pool does that, with opcache memory of its own.
 */
#include "host.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static int lock_file = -1;
static zif_handler reset_handler;
static bool reset_called;

static ZEND_FUNCTION(noted_opcache_reset)
{
	reset_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	reset_called |= Z_TYPE_P(return_value) == IS_TRUE;
}

bool opcache_reset_called(void)
{
	return reset_called;
}

void opcache_before_startup(void)
{
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
