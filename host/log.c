/* Lines on standard error, where the pool reads them: tagged with the request's id while there is one. Never blocks
 * PHP's own use of standard error; a line is one write, so that lines of several workers do not mix. */
#include "host.h"

#include <stdarg.h>
#include <unistd.h>

static void write_line(const char *text, size_t len)
{
	char line[4096];
	size_t at = 0;
	if (request.exchange.slot != NULL) {
		size_t id = MIN(request.field[HY_FIELD_REQUEST_ID].len, 128);
		line[at++] = HY_LOG_RECORD;
		memcpy(line + at, request.field[HY_FIELD_REQUEST_ID].at, id);
		at += id;
		line[at++] = HY_LOG_UNIT;
	}
	len = MIN(len, sizeof line - at - 1);
	memcpy(line + at, text, len);
	at += len;
	line[at++] = '\n';
	ssize_t written = write(STDERR_FILENO, line, at);
	(void)written; /* nobody left to tell */
}

void log_line(const char *text)
{
	do {
		size_t len = strcspn(text, "\n");
		if (len > 0) {
			write_line(text, len);
		}
		text += len + (text[len] == '\n');
	} while (*text != '\0');
}

void log_own(const char *text)
{
	char line[4000];
	snprintf(line, sizeof line, HY_LOG_OWN "%s", text);
	log_line(line);
}

void log_format(const char *format, ...)
{
	char text[3800];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	log_own(text);
}
