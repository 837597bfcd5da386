/*
 * Whose code a file holds: the project's own, or other people's. Theirs is written for any project, and looks at
 * requests when it is asked to: what Composer brought, PHP's own library, and our boot scripts. Files of the project
 * need not lie below its directory: parts of it may be linked.
 */
#include "host.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Directories, resolved as PHP has the names of files. Empty: there is none. */
static char of_composer[PATH_MAX], of_php[PATH_MAX], of_boot_scripts[PATH_MAX];
/* The project itself, which may lie in PHP's library, as packages of a distribution do. */
static char own[PATH_MAX];

static bool is_below(const char *name, const char *directory)
{
	size_t len = strlen(directory);
	return len > 0 && strncmp(name, directory, len) == 0 && name[len] == '/';
}

bool owner_is_project(const char *file)
{
	return !is_below(file, of_composer) && !is_below(file, of_boot_scripts) &&
	       (!is_below(file, of_php) || (is_below(own, of_php) && is_below(file, own)));
}

bool owner_is_boot_script(const char *file)
{
	return is_below(file, of_boot_scripts);
}

/* Where nobody has said which project a script belongs to. */
bool owner_seems_package(const char *file)
{
	return strstr(file, "/vendor/") != NULL || is_below(file, "/usr/share/php");
}

bool owner_is_package(const char *file)
{
	return is_below(file, of_composer) || (is_below(file, of_php) && !owner_is_project(file));
}

const zend_execute_data *owner_calling(const zend_execute_data *frame)
{
	while (frame != NULL && (frame->func == NULL || !ZEND_USER_CODE(frame->func->type))) {
		frame = frame->prev_execute_data;
	}
	return frame;
}

static void resolve(const char *directory, char to[PATH_MAX])
{
	if (realpath(directory, to) == NULL) {
		to[0] = '\0';
	}
}

void owner_startup(void)
{
	const char *project = options_env("HAYATE_PROJECT");
	char path[PATH_MAX], boot[PATH_MAX];
	if (!options_is_project()) {
		return;
	}
	snprintf(path, sizeof path, "%s/vendor", project);
	snprintf(boot, sizeof boot, "%s", options.worker_script);
	resolve(path, of_composer);
	resolve(project, own);
	resolve("/usr/share/php", of_php);
	resolve(dirname(boot), of_boot_scripts);
}
