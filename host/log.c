/*
 * Records on standard error, where the pool reads them: tagged with the request's id while there is one. Never blocks
 * PHP's own use of standard error; a part of a record is one write that others cannot come between (pipe(7): up to
 * PIPE_BUF bytes), so that records of several workers do not mix.
 */
#include "host.h"

#include <limits.h>
#include <stdarg.h>
#include <unistd.h>

/* Longer records end here. */
#define LONGEST (64u << 10)

/* The longest id of a request that is written; the front's are shorter. */
#define LONGEST_ID 128u

void log_for(const char *id, size_t id_len, const char *text, size_t len)
{
	char part[PIPE_BUF];
	len = MIN(len, LONGEST);
	id_len = MIN(id_len, LONGEST_ID);
	while (len > 0) {
		size_t at = 0;
		if (id != NULL) {
			part[at++] = HY_LOG_RECORD;
			memcpy(part + at, id, id_len);
			at += id_len;
			part[at++] = HY_LOG_UNIT;
		}
		size_t n = MIN(len, sizeof part - at - 2);
		for (size_t i = 0; i < n; i++) {
			bool mark = text[i] >= HY_LOG_MORE && text[i] <= HY_LOG_UNIT;
			part[at++] = text[i] == '\n' ? HY_LOG_LINE_END : mark ? '?' : text[i];
		}
		text += n;
		len -= n;
		if (len > 0) {
			part[at++] = HY_LOG_MORE;
		}
		part[at++] = '\n';
		ssize_t written = write(STDERR_FILENO, part, at);
		(void)written; /* nobody left to tell */
	}
}

static void write_record(const char *text, size_t len)
{
	bool of_request = request.exchange.slot != NULL;
	log_for(of_request ? request.field[HY_FIELD_REQUEST_ID].at : NULL, request.field[HY_FIELD_REQUEST_ID].len, text,
	        len);
}

void log_record(const char *text)
{
	size_t len = strlen(text);
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) {
		len--;
	}
	write_record(text, len);
}

void log_lines(const char *text)
{
	do {
		size_t len = strcspn(text, "\n");
		write_record(text, len);
		text += len + (text[len] == '\n');
	} while (*text != '\0');
}

void log_own(const char *text)
{
	char record[4000];
	snprintf(record, sizeof record, HY_LOG_OWN "%s", text);
	log_record(record);
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
