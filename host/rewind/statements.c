/*
 * What an SQL statement means for the connection that it is sent on: nothing, a setting that has to be made again after
 * the server has forgotten it, or something that cannot be told. Only what is known is told to be harmless; a stored
 * function that takes a lock or sets a variable is not seen through.
 */
#include "connections_internal.h"

#include <strings.h>
#include <string.h>

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The word at the beginning; moves behind it and the space after it. */
static size_t word(const char **at, const char *end)
{
	const char *from = *at;
	while (*at < end && is_word(**at)) {
		(*at)++;
	}
	size_t len = (size_t)(*at - from);
	while (*at < end && is_space(**at)) {
		(*at)++;
	}
	return len;
}

static bool is(const char *at, size_t len, const char *name)
{
	return strlen(name) == len && strncasecmp(at, name, len) == 0;
}

static bool is_one_of(const char *at, size_t len, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (is(at, len, names[i])) {
			return true;
		}
	}
	return false;
}
#define ONE_OF(at, len, names) is_one_of(at, len, names, sizeof(names) / sizeof(names)[0])

static bool holds(const char *text, const char *end, const char *part)
{
	size_t len = strlen(part);
	for (const char *at = text; at < end && (size_t)(end - at) >= len; at++) {
		if (strncasecmp(at, part, len) == 0) {
			return true;
		}
	}
	return false;
}

/* A variable of the user's own, as MySQL has them: @name, not @@name. */
static bool has_user_variable(const char *text, const char *end)
{
	for (const char *at = text; at < end; at++) {
		if (*at == '@') {
			if (at + 1 == end || at[1] != '@') {
				return true;
			}
			at++;
		}
	}
	return false;
}

/* What PREPARE … FROM is given: one text, which the words of the statement are all of. Several stand for one that has
 * others. */
static bool is_one_literal(const char *at, const char *end)
{
	size_t quotes = 0;
	while (at < end && is_space(*at)) {
		at++;
	}
	bool begins = at < end && (*at == '\'' || *at == '"');
	for (; at < end; at++) {
		quotes += *at == '\'' || *at == '"';
	}
	return begins && quotes == 2;
}

unsigned statement_words(const uint8_t *bytes, size_t len)
{
	static const char *const moving[] = {"use", "role"};
	/* CALL and EXECUTE IMMEDIATE run what is not seen here. */
	static const char *const staying[] = {"profiling", "call", "immediate"};
	const char *at = (const char *)bytes, *end = at + len;
	unsigned words = 0;
	bool xa = false, prepare = false, unseen = false;
	while (at < end) {
		const char *from = at;
		while (at < end && is_word(*at)) {
			at++;
		}
		/* A comment that is code begins with a version. */
		while (from < at && *from >= '0' && *from <= '9') {
			from++;
		}
		size_t size = (size_t)(at - from);
		words |= ONE_OF(from, size, moving) ? WORD_MOVES : 0;
		words |= ONE_OF(from, size, staying) ? WORD_STAYS : 0;
		xa |= is(from, size, "xa");
		unseen |= prepare && is(from, size, "from") && !is_one_literal(at, end);
		prepare |= is(from, size, "prepare");
		at += at < end; /* no part of a word */
	}
	/* MariaDB's reset leaves the session with the transaction that XA PREPARE has prepared: each statement fails then.
	 */
	return words | ((xa && prepare) || unseen ? WORD_STAYS : 0);
}

/* Without the space around it, and what ends it. */
static void trim(const char **text, const char **end)
{
	while (*text < *end && is_space(**text)) {
		(*text)++;
	}
	while (*end > *text && (is_space((*end)[-1]) || (*end)[-1] == ';')) {
		(*end)--;
	}
}

enum effect statement_effect(const char *text, size_t len)
{
	static const char *const harmless[] = {"select", "show",  "use",     "describe", "desc",   "explain",   "with",
	                                       "begin",  "start", "commit",  "rollback", "insert", "update",    "delete",
	                                       "values", "table", "replace", "end",      "close",  "deallocate"};
	static const char *const set_other[] = {"global",   "persist", "persist_only", "password", "statement",
	                                        "resource", "default", "local",        "@@global", "constraints"};
	/* Functions and clauses whose effect outlives the statement. */
	static const char *const lasting[] = {
	    "get_lock",   "release_",    "last_insert_id",  "nextval", "lastval",  "setval", "next value",
	    "set_config", "pg_advisory", "pg_try_advisory", "lo_open", "lo_creat", "dblink", "sql_calc_found_rows",
	    " into ",     "\ninto ",     "\tinto "};
	const char *end = text + len;
	trim(&text, &end);
	if (text == end) {
		return EFFECT_NONE;
	}
	/* Several statements in one, comments that are code, and what hides in them. */
	if (memchr(text, ';', (size_t)(end - text)) != NULL || memchr(text, '\0', (size_t)(end - text)) != NULL ||
	    holds(text, end, "/*") || has_user_variable(text, end)) {
		return EFFECT_UNKNOWN;
	}
	const char *at = text, *first = text;
	size_t first_len = word(&at, end);
	if (is(first, first_len, "set")) {
		const char *second = at;
		size_t second_len = word(&at, end);
		if (ONE_OF(second, second_len, set_other) || holds(text, end, "@@global") || holds(text, end, "@@persist") ||
		    holds(text, end, "global ") || holds(text, end, "select")) {
			return EFFECT_UNKNOWN;
		}
		return EFFECT_SETTING;
	}
	if (!ONE_OF(first, first_len, harmless)) {
		return EFFECT_UNKNOWN;
	}
	bool writes = is(first, first_len, "insert") || is(first, first_len, "replace");
	for (size_t i = 0; i < sizeof lasting / sizeof lasting[0]; i++) {
		/* INSERT INTO is no SELECT … INTO. */
		if (!(writes && strstr(lasting[i], "into") != NULL) && holds(text, end, lasting[i])) {
			return EFFECT_UNKNOWN;
		}
	}
	return EFFECT_NONE;
}

size_t statement_variables(const char **statement, size_t len)
{
	const char *text = *statement, *end = text + len;
	trim(&text, &end);
	const char *at = text;
	if (!is(text, word(&at, end), "set") || at == end ||
	    statement_words((const uint8_t *)text, (size_t)(end - text)) != 0 || holds(at, end, "transaction") ||
	    holds(at, end, "#") || holds(at, end, "--")) {
		return 0;
	}
	*statement = at;
	return (size_t)(end - at);
}
