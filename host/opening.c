/*
 * The script that a request names, where PHP cannot open it. php-fpm opens it before anything else and answers 403 or
 * 404; any other SAPI runs into a fatal error, 500. Here the answer is php-fpm's, word by word, and the log names the
 * file and the user who may not read it.
 *
 * PHP is asked nothing that it would not have asked by itself: with OPcache most requests open no script at all.
 */
#include "host.h"

#include "php_main.h"

#include <pwd.h>
#include <unistd.h>

/* The script of the request that is served in classic mode. */
static const zend_file_handle *of_request;
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

static zend_result open_file(zend_file_handle *file)
{
	if (file != of_request) {
		return open_any(file);
	}
	errno = 0;
	/* As php_fopen_primary_script(): what is wrong with it is said once, and not to visitors. */
	if (php_stream_open_for_zend_ex(file, USE_PATH | STREAM_OPEN_FOR_INCLUDE) == SUCCESS) {
		return SUCCESS;
	}
	int why = errno;
	of_request = NULL;
	log_refusal(ZSTR_VAL(file->filename), why);
	SG(sapi_headers).http_response_code = why == EACCES ? 403 : 404;
	if (why == EACCES) {
		PUTS("Access denied.\n");
	} else {
		PUTS("File not found.\n");
	}
	/* As the fatal error that it would be. */
	zend_bailout();
}

void opening_startup(void)
{
	open_any = zend_stream_open_function;
	zend_stream_open_function = open_file;
}

void opening_begin(const zend_file_handle *script)
{
	of_request = script;
}

void opening_end(void)
{
	of_request = NULL;
}
