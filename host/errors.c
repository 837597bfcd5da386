/*
 * Errors in development (--dev): what a developer has to see is in the browser, as under `php -S`, and in the log.
 *
 * Settings of the application's own ([app.ini], ini_set(), .user.ini) win, and so do its handlers: a framework's error
 * page stays the framework's. Without --dev nothing here does anything.
 */
#include "host.h"

/* As PHP's own php.ini-development. */
static const char settings[] = "display_errors=1\ndisplay_startup_errors=1\nerror_reporting=32767\nhtml_errors=1\n"
                               "log_errors=1\n";

#define FATAL (E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR)

char *errors_settings(char *others)
{
	char *all;
	if (!options.development) {
		return others;
	}
	return asprintf(&all, "%s%s", settings, others == NULL ? "" : others) < 0 ? others : all;
}

void errors_of_boot(void)
{
	if (options.development) {
		/* Nobody looks at what a boot prints, and the log has the message already. */
		PG(display_errors) = 0;
	}
}

/* As main.c of PHP, which keeps it to itself. */
static zend_uchar display_mode(void)
{
	const char *value = INI_STR("display_errors");
	if (value == NULL) {
		return 0;
	}
	if (strcasecmp(value, "on") == 0 || strcasecmp(value, "yes") == 0 || strcasecmp(value, "true") == 0 ||
	    strcasecmp(value, "stdout") == 0) {
		return 1;
	}
	return strcasecmp(value, "stderr") == 0 ? 2 : (zend_uchar)(atoi(value) != 0);
}

static void look_for_html(const char *name, size_t name_len, const char *value, size_t value_len, void *to)
{
	if (name_len == 6 && memcmp(name, "accept", 6) == 0) {
		*(bool *)to |= strstr(value, "text/html") != NULL;
	}
}

void errors_of_request(void)
{
	if (!options.development) {
		return;
	}
	bool html = false;
	request_each_header(look_for_html, &html);
	PG(display_errors) = display_mode();
	/* Text for who does not ask for a page: curl, and scripts that expect JSON. */
	PG(html_errors) = INI_BOOL("html_errors") && html;
}

bool errors_failed(void)
{
	return options.development && PG(last_error_message) != NULL && (PG(last_error_type) & FATAL) != 0;
}
