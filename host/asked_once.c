/*
 * What a project's own code asks for in a boot that we run (php/boot/), before there is a request. It runs once, and
 * what it found holds for all visitors. So an application is served in classic mode where its code
 *
 * - looks at the request;
 * - calls exit, or abort() of Laravel, only where something is so that may be otherwise later: a file that is there
 * while the site is closed, an address that is blocked;
 *
 * and where its own front controller is run (front_controller.c; of symfony/runtime's it is the last of these, in that
 * file alone), also where that, or a file that it includes,
 *
 * - draws or reads the clock;
 * - answers, throws, includes a file for what it does, or comes to the request, only where something is so.
 *
 * It is seen in the syntax tree of each file, as PHP compiles it. The top level of a file counts as run; a function
 * with a name counts where it was called before the boot's end, which its run-time cache tells. One without a name that
 * would be a reason is given a first statement by which it says that it runs: containers, routers and event
 * dispatchers call it, or keep it for a request. Where in that code the boot stands when the request is to be handled,
 * the stack tells.
 *
 * It goes by names, and a condition is doubted unless it is known to be the same for all requests (settled.h). What is
 * not seen here shows in the comparison with classic mode (compare.c), where there is one. What opcache.preload has
 * compiled before the boot is not looked into.
 *
 * Here is where PHP is listened to, and what is said at the end of the boot. asked_once_walk.c looks into the trees,
 * asked_once_signs.c knows by what code asks for the request, and asked_once_notes.c keeps what was seen.
 */
#include "asked_once.h"
#include "asked.h"
#include "host.h"
#include "settled.h"

#include "php_ini.h"
#include "zend_compile.h"
#include "zend_language_scanner.h"
#include "zend_observer.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Until the boot's end. */
static bool booting;

bool asked_once_is_booting(void)
{
	return booting;
}

bool asked_once_looks_into(const zend_string *name)
{
	/* A relative one may be looked for in many places. */
	char resolved[PATH_MAX];
	return booting && (name == NULL || ZSTR_VAL(name)[0] != '/' || realpath(ZSTR_VAL(name), resolved) == NULL ||
	                   owner_is_project(resolved));
}

/* Whether OPcache writes code to files, for processes in which functions of ours are not known: they would crash. */
static bool others_get_code(void)
{
	const char *directory = INI_STR("opcache.file_cache");
	return directory != NULL && directory[0] != '\0';
}

/* OPcache, where it keeps what it compiles in files: of the project's own code it is to have none (others_get_code())
 * until the boot is over. */
static zend_op_array *(*by_opcache)(zend_file_handle *, int);

static zend_op_array *compile_past_files(zend_file_handle *in, int type)
{
	return asked_once_looks_into(in->filename) ? compile_file(in, type) : by_opcache(in, type);
}

/* Who looked at what is compiled before this: an extension. */
static zend_ast_process_t others;

static void look_into(zend_ast *statements)
{
	if (others != NULL) {
		others(statements);
	}
	const char *name = ZSTR_VAL(zend_get_compiled_filename());
	if (!booting || statements->kind != ZEND_AST_STMT_LIST) {
		return;
	}
	if (owner_is_package(name) && !front_controller_boots() && !others_get_code()) {
		asked_by_packages_look(statements, name);
	}
	if (!owner_is_project(name)) {
		return;
	}
	asked_once_note_file(name);
	asked_once_walk(statements);
}

/* What of a request the boot missed, as PHP told it, whoever asked. */
static char missed[512];

static void hear_of_error(int type, zend_string *in, uint32_t line, zend_string *message)
{
	static const char undefined[] = "Undefined array key \"";
	const char *text = ZSTR_VAL(message), *name = strstr(text, undefined);
	if (booting && missed[0] == '\0' && name != NULL && settled_is_of_request(name + strlen(undefined))) {
		snprintf(missed, sizeof missed, "%s:%" PRIu32 " misses what a request has (%.200s)",
		         in != NULL ? ZSTR_VAL(in) : "PHP", line, text);
	}
}

/* ran(int $number): void: says that a function without a name runs. */
static PHP_FUNCTION(ran)
{
	zend_long number;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_LONG(number)
	ZEND_PARSE_PARAMETERS_END();
	if (booting && number >= 0) {
		asked_once_note_ran((size_t)number);
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_ran, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, number, IS_LONG, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {ZEND_NS_FE("Hayate\\Boot", ran, arginfo_ran) ZEND_FE_END};

/* Settings of a directory or a host hold for its scripts and are read for each request, in classic mode alone. */
static void look_for_directory_settings(void)
{
	const char *name = PG(user_ini_filename);
	char path[PATH_MAX], why[PATH_MAX + 256];
	if (name != NULL && name[0] != '\0' && options.document_root != NULL) {
		snprintf(path, sizeof path, "%s/%s", options.document_root, name);
		if (access(path, F_OK) == 0) {
			snprintf(why, sizeof why,
			         "%s (user_ini.filename) has settings for its scripts, which classic mode alone applies; move them "
			         "to [app.ini], and delete it",
			         path);
			zygote_boot_again(HY_AGAIN_CLASSIC, why);
		}
	}
	if (php_ini_has_per_dir_config() || php_ini_has_per_host_config()) {
		zygote_boot_again(HY_AGAIN_CLASSIC, "php.ini has settings for some directories or hosts ([PATH=…], [HOST=…]), "
		                                    "which classic mode alone applies; move them to [app.ini]");
	}
}

/* What settings of PHP have run before or after each script. */
static void look_for_files_around(const char *around, const char *text)
{
	if (around != NULL && around[0] != '\0') {
		char why[512];
		snprintf(why, sizeof why, text, around);
		zygote_boot_again(HY_AGAIN_CLASSIC, why);
	}
}

void asked_once_startup(void)
{
	if (!options_is_project()) {
		return;
	}
	look_for_files_around(PG(auto_prepend_file),
	                      "auto_prepend_file = %s would run " ONCE ", or leave that setting out");
	look_for_files_around(PG(auto_append_file),
	                      "auto_append_file = %s would never run, since the front controller does not "
	                      "come to its end; leave that setting out");
	look_for_directory_settings();
	asked_once_notes_begin();
	functions_of_boot_scripts(functions);
	if (others_get_code()) {
		by_opcache = zend_compile_file;
		zend_compile_file = compile_past_files;
	}
	booting = true;
	zend_observer_error_register(hear_of_error);
	others = zend_ast_process;
	zend_ast_process = look_into;
}

const char *asked_once(void)
{
	if (booting) {
		booting = false;
		asked_once_notes_over();
	}
	return asked_once_noted();
}

const char *asked_in_vain(void)
{
	const char *asks = asked_once();
	asks = asks != NULL ? asks : asked_by_packages();
	return asks != NULL ? asks : missed[0] != '\0' ? missed : NULL;
}
