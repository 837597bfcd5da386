/*
 * PHP starts as the application's user and reads its ini files as that. php-fpm reads them as root. What this user may
 * not read PHP passes over in silence, and a setting in it, such as open_basedir or disable_functions, would not hold:
 * so that is an error, and the application does not boot.
 *
 * Looked at are the files that PHP itself looks for (php_init_config() of main/php_ini.c), in its order.
 */
#include "host.h"

#include "zend_constants.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static char wrong[2 * PATH_MAX + 256];

/* True, and `wrong` says why: there may be something that this process cannot read. */
static bool is_wrong(const char *path, int why)
{
	if (why == 0 || why == ENOENT || why == ENOTDIR) {
		return false;
	}
	snprintf(wrong, sizeof wrong,
	         "user %ld of PHP cannot read %s (%s), so PHP would pass over the settings in it; let this user read it: "
	         "chgrp to its group and chmod g+r, and g+x for the directories above",
	         (long)geteuid(), path, strerror(why));
	/* Whatever a file is called, it is a line. */
	for (char *at = wrong; *at != '\0'; at++) {
		*at = iscntrl((unsigned char)*at) ? '?' : *at;
	}
	return true;
}

/* As PHP does it: what may be opened, access() does not know (Landlock, AppArmor). `found`: it is there. */
static bool may_be_read(const char *path, bool *found)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), why = fd < 0 ? errno : 0;
	if (fd >= 0) {
		close(fd);
	}
	*found = fd >= 0;
	return !is_wrong(path, why);
}

static const char *constant(const char *name)
{
	const zval *value = zend_get_constant_str(name, strlen(name));
	return value != NULL && Z_TYPE_P(value) == IS_STRING ? Z_STRVAL_P(value) : "";
}

/* Each part of a list with colons, in turn. */
static bool next_part(const char **list, char *part, size_t size)
{
	if (*list == NULL) {
		return false;
	}
	size_t len = strcspn(*list, ":");
	snprintf(part, size, "%.*s", (int)len, *list);
	*list = (*list)[len] == ':' ? *list + len + 1 : NULL;
	return true;
}

/* php.ini: what is named as a file, then php-SAPI.ini in each place, then php.ini in each. */
static bool look_for_php_ini(void)
{
	bool found = false;
	const char *override = sapi_module.php_ini_path_override, *rc = getenv("PHPRC");
	const char *named = override != NULL ? override : rc;
	struct stat status;
	if (named != NULL && *named != '\0' && !(stat(named, &status) == 0 && S_ISDIR(status.st_mode)) &&
	    !may_be_read(named, &found)) {
		return false;
	}
	char beside[PATH_MAX] = "";
	const char *binary = sapi_module.executable_location, *slash = binary == NULL ? NULL : strrchr(binary, '/');
	if (slash != NULL) {
		snprintf(beside, sizeof beside, "%.*s", (int)(slash - binary), binary);
	}
	const char *places[] = {override != NULL ? override : rc, override != NULL ? NULL : beside,
	                        override != NULL ? NULL : constant("PHP_CONFIG_FILE_PATH")};
	char own[64];
	snprintf(own, sizeof own, "php-%s.ini", sapi_module.name);
	const char *names[] = {own, "php.ini"};
	for (size_t name = 0; name < 2; name++) {
		for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
			const char *list = places[i];
			char place[PATH_MAX], path[PATH_MAX + 80];
			while (!found && next_part(&list, place, sizeof place)) {
				snprintf(path, sizeof path, "%s/%s", place, names[name]);
				if (*place != '\0' && !may_be_read(path, &found)) {
					return false;
				}
			}
		}
	}
	return true;
}

static bool look_at_directory(const char *place)
{
	DIR *directory = opendir(place);
	if (directory == NULL) {
		return !is_wrong(place, errno);
	}
	bool fine = true;
	const struct dirent *entry;
	while (fine && (entry = readdir(directory)) != NULL) {
		size_t len = strlen(entry->d_name);
		char path[PATH_MAX];
		struct stat status;
		bool found;
		if (len >= 4 && strcmp(entry->d_name + len - 4, ".ini") == 0 &&
		    snprintf(path, sizeof path, "%s/%s", place, entry->d_name) < (int)sizeof path) {
			/* PHP reads what is no directory and such. */
			bool no_file = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
			fine = no_file || may_be_read(path, &found);
		}
	}
	closedir(directory);
	return fine;
}

const char *ini_files_unread(void)
{
	if (!look_for_php_ini()) {
		return wrong;
	}
	const char *distributions = constant("PHP_CONFIG_FILE_SCAN_DIR"), *scanned = getenv("PHP_INI_SCAN_DIR");
	if (scanned != NULL && *scanned == '\0') {
		return NULL; /* none are read then */
	}
	const char *list = scanned == NULL ? distributions : scanned;
	char place[PATH_MAX];
	while (next_part(&list, place, sizeof place)) {
		if (!look_at_directory(*place == '\0' ? distributions : place)) {
			return wrong;
		}
	}
	return NULL;
}
