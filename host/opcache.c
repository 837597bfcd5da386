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
 */
#include "host.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static int lock_file = -1;

void opcache_before_startup(void)
{
	sapi_module.name = "fpm-fcgi";
}

void opcache_after_startup(void)
{
	sapi_module.name = HAYATE_SAPI_NAME;
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
