/*
 * The script that a request names, where PHP cannot open it. php-fpm opens it before anything else and answers 403 or
 * 404; any other SAPI runs into a fatal error, 500. Here the answer is php-fpm's, word by word, and the log names the
 * file and the user who may not read it.
 *
 * PHP is asked nothing that it would not have asked by itself: with OPcache most requests open no script at all.
 */
#include "host.h"

#include "php_main.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

/* The script of the request that is served in classic mode. */
static const zend_file_handle *of_request;
/*
 * What auto_prepend_file names would run before PHP opens that script. Where it cannot be opened, this name is
 * prepended instead: no cache has it, so that PHP asks to open it, and the answer is given there.
 */
static char instead[] = "/dev/null/hayate: the script of the request cannot be opened";
static char *prepended;
static zend_result (*open_any)(zend_file_handle *file);

static void log_refusal(const char *file, int why)
{
	struct passwd entry, *user = NULL;
	char room[1024];
	if (why != EACCES || getpwuid_r(geteuid(), &entry, room, sizeof room, &user) != 0) {
		user = NULL;
	}
	if (why == EACCES) {
		log_format(HY_LOG_ERROR
		           "Unable to open primary script: %s (%s): PHP runs as %s%suid %u%s, who may not read it, "
		           "or not search a directory above it; answered 403. Give that user the right.",
		           file, strerror(why), user != NULL ? user->pw_name : "", user != NULL ? " (" : "",
		           (unsigned)geteuid(), user != NULL ? ")" : "");
	} else {
		log_format(HY_LOG_ERROR "Unable to open primary script: %s (%s); answered 404.", file, strerror(why));
	}
}

static ZEND_COLD ZEND_NORETURN void refuse(const char *file, int why)
{
	of_request = NULL;
	log_refusal(file, why);
	SG(sapi_headers).http_response_code = why == EACCES ? 403 : 404;
	if (why == EACCES) {
		PUTS("Access denied.\n");
	} else {
		PUTS("File not found.\n");
	}
	/* As the fatal error that it would be. */
	zend_bailout();
}

/* What opening it as PHP would says, 0: it can be opened. */
static int cannot_open(const char *file)
{
	if (php_check_open_basedir_ex(file, 0) != 0) {
		return EPERM;
	}
	return faccessat(AT_FDCWD, file, R_OK, AT_EACCESS) == 0 ? 0 : errno;
}

static zend_result open_file(zend_file_handle *file)
{
	if (prepended != NULL && of_request != NULL &&
	    zend_string_equals_cstr(file->filename, instead, sizeof instead - 1)) {
		const char *name = ZSTR_VAL(of_request->filename);
		int why = cannot_open(name);
		/* It can be opened since: who asks again gets it. */
		refuse(name, why != 0 ? why : EACCES);
	}
	if (file != of_request) {
		return open_any(file);
	}
	errno = 0;
	/* As php_fopen_primary_script(): what is wrong with it is said once, and not to visitors. */
	if (php_stream_open_for_zend_ex(file, USE_PATH | STREAM_OPEN_FOR_INCLUDE) == SUCCESS) {
		return SUCCESS;
	}
	refuse(ZSTR_VAL(file->filename), errno);
}

void opening_startup(void)
{
	open_any = zend_stream_open_function;
	zend_stream_open_function = open_file;
}

void opening_begin(const zend_file_handle *script)
{
	of_request = script;
	const char *prepends = PG(auto_prepend_file);
	if (prepends != NULL && *prepends != '\0' && cannot_open(ZSTR_VAL(script->filename)) != 0) {
		prepended = PG(auto_prepend_file);
		PG(auto_prepend_file) = instead;
	}
}

void opening_end(void)
{
	of_request = NULL;
	if (prepended != NULL) {
		PG(auto_prepend_file) = prepended;
		prepended = NULL;
	}
}
