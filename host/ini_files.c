/*
 * PHP starts as the application's user and reads its ini files as that. php-fpm reads them as root. What this user may
 * not read PHP passes over in silence, and a setting in it, such as open_basedir or disable_functions, would not hold:
 * so that is an error, and the application does not boot.
 *
 * Looked at are the files that PHP itself looks for (php_init_config() of main/php_ini.c), in its order.
 */
#include "host.h"

#include "zend_constants.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static char wrong[2 * PATH_MAX + 256];

/* Whether it may be read, or else is not there: false, and `wrong` says why, where its rights are in the way. */
static bool may_be_read(const char *path, bool *is_there)
{
	int why = faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0 ? 0 : errno;
	*is_there = why == 0;
	if (why != EACCES) {
		return true;
	}
	snprintf(
	    wrong, sizeof wrong,
	    "user %ld of PHP cannot read %s, so PHP would pass over the settings in it; let this user read it: chgrp to "
	    "its group and chmod g+r, and g+x for the directories above",
	    (long)geteuid(), path);
	return false;
}

static const char *constant(const char *name)
{
	const zval *value = zend_get_constant_str(name, strlen(name));
	return value != NULL && Z_TYPE_P(value) == IS_STRING ? Z_STRVAL_P(value) : "";
}

/* php.ini, in a directory or itself. `found`: it ends the search. */
static bool look_in(const char *place, bool *found)
{
	const char *names[] = {"php-%s.ini", "php.ini"};
	char path[PATH_MAX];
	struct stat status;
	if (stat(place, &status) == 0 && !S_ISDIR(status.st_mode)) {
		return may_be_read(place, found);
	}
	for (size_t i = 0; i < sizeof names / sizeof names[0] && !*found; i++) {
		char name[64];
		snprintf(name, sizeof name, names[i], sapi_module.name);
		if (snprintf(path, sizeof path, "%s/%s", place, name) < (int)sizeof path && !may_be_read(path, found)) {
			return false;
		}
	}
	return true;
}

static bool look_at_directory(const char *place)
{
	DIR *directory = opendir(place);
	if (directory == NULL) {
		bool is_there;
		return errno != EACCES || may_be_read(place, &is_there);
	}
	bool fine = true;
	const struct dirent *entry;
	while (fine && (entry = readdir(directory)) != NULL) {
		size_t len = strlen(entry->d_name);
		char path[PATH_MAX];
		bool is_there;
		struct stat status;
		if (len > 4 && strcmp(entry->d_name + len - 4, ".ini") == 0 &&
		    snprintf(path, sizeof path, "%s/%s", place, entry->d_name) < (int)sizeof path) {
			/* PHP reads what is no directory and such. */
			bool no_file = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
			fine = no_file || may_be_read(path, &is_there);
		}
	}
	closedir(directory);
	return fine;
}

const char *ini_files_unread(void)
{
	bool found = false;
	const char *rc = getenv("PHPRC");
	bool fine = sapi_module.php_ini_path_override != NULL
	                ? look_in(sapi_module.php_ini_path_override, &found)
	                : (rc == NULL || *rc == '\0' || look_in(rc, &found)) &&
	                      (found || look_in(constant("PHP_CONFIG_FILE_PATH"), &found));
	if (!fine) {
		return wrong;
	}
	const char *distributions = constant("PHP_CONFIG_FILE_SCAN_DIR");
	const char *scanned = getenv("PHP_INI_SCAN_DIR");
	if (scanned != NULL && *scanned == '\0') {
		return NULL; /* none are read then */
	}
	for (const char *at = scanned == NULL ? distributions : scanned; at != NULL;) {
		size_t len = strcspn(at, ":");
		char place[PATH_MAX];
		snprintf(place, sizeof place, "%.*s", (int)len, at);
		const char *next = at[len] == ':' ? at + len + 1 : NULL;
		if (!look_at_directory(len == 0 ? distributions : place)) {
			return wrong;
		}
		at = next;
	}
	return NULL;
}
