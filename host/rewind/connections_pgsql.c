/*
 * PostgreSQL, protocol 3. A message has a letter, four bytes of length, most first, and a body; the client's first one
 * has no letter. The server says at the end of each answer whether a transaction is open (ReadyForQuery).
 *
 * DISCARD ALL forgets settings, temporary tables, prepared statements, locks, cursors, what is listened to. Whether an
 * answer was outstanding is not looked at: the last call asks for a number that nobody can have foreseen, so that what
 * is read up to it is all there is; and the answers before it have to be exactly as many as there were questions.
 *
 * A configuration that is read again (pg_reload_conf()) changes settings of open sessions, and the server tells the
 * client so (ParameterStatus), whose memory is that of the point. So after DISCARD ALL one SELECT asks for what decides
 * how a client has to quote and what a statement means; where that is not as it was, the connection is not put back.
 * And what decides how to quote is then set for the session, which no configuration changes any more, until the next
 * DISCARD ALL: an idle server reads its configuration when the first statement of the next request has come.
 *
 * What is told besides are calls of functions (FunctionCall, as for large objects), not SELECTs, and the settings are
 * one message: without parser and planner the backend executes less than half (docs/databases.md has the figures).
 */
#include "connections_internal.h"

#include <string.h>

#define VERSION_3 0x00030000u
#define SSL_REQUEST 80877103u
#define GSS_REQUEST 80877104u

static uint32_t number(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_first(uint32_t code)
{
	return code == VERSION_3 || code == SSL_REQUEST || code == GSS_REQUEST;
}

static bool is(bool client, const uint8_t *bytes)
{
	return client && bytes[0] == 0 && is_first(number(bytes + 4));
}

static size_t message_size(const struct connection *one, const uint8_t *bytes, size_t have)
{
	size_t head = one->started ? 1 : 0;
	if (have < head + 4) {
		return 0;
	}
	uint32_t len = number(bytes + head);
	return len < 4 || len > 1u << 30 ? BAD_MESSAGE : head + len;
}

static void note_statement(struct connection *one, const char *text, size_t len)
{
	enum effect effect = statement_effect(text, len);
	if (effect == EFFECT_UNKNOWN) {
		char why[200];
		snprintf(why, sizeof why, "before the snapshot it was told \"%.*s\", which cannot be repeated",
		         len < 80 ? (int)len : 80, text);
		connection_declined(one, why);
	} else if (effect == EFFECT_SETTING) {
		/* A line of its own each: one may end in a comment. */
		if (one->again_count > 0) {
			connection_append(one, "\n;\n", 3);
		}
		connection_append(one, text, len);
		one->again_count++;
	}
}

static void said(struct connection *one, const uint8_t *message, size_t len, bool whole)
{
	if (!one->started) {
		uint32_t code = len < 8 ? 0 : number(message + 4);
		one->started = code == VERSION_3;
		if (!is_first(code)) {
			connection_declined(one, "it is encrypted (TLS), and both ends count what they have said");
			one->broken = true;
		}
		return;
	}
	const char *body = (const char *)message + 5;
	size_t size = len < 5 ? 0 : len - 5;
	switch (message[0]) {
	case 'Q':
	case 'P':
		if (!whole) {
			connection_declined(one, "before the snapshot it was told a statement of more than 16 KiB");
		} else {
			size_t name = message[0] == 'P' ? strnlen(body, size) + 1 : 0;
			if (name <= size) {
				note_statement(one, body + name, strnlen(body + name, size - name));
			}
		}
		break;
	case 'p':
	case 'B':
	case 'E':
	case 'D':
	case 'S':
	case 'H':
	case 'C':
		break;
	default:
		connection_declined(one, "before the snapshot it was told a command that Hayate cannot repeat");
	}
}

static void heard(struct connection *one, const uint8_t *bytes, size_t len)
{
	const size_t room = sizeof one->tail;
	if (len >= room) {
		memcpy(one->tail, bytes + len - room, room);
		return;
	}
	memmove(one->tail, one->tail + len, room - len);
	memcpy(one->tail + room - len, bytes, len);
}

/* The last thing that came is what ends an answer. If it only looks so, the reset fails. */
static const char *left(const struct connection *one)
{
	static const uint8_t ready[] = {'Z', 0, 0, 0, 5};
	bool read = !one->asked && memcmp(one->tail, ready, sizeof ready) == 0;
	return read ? NULL : "it left an answer unread (pg_send_query()), or a COPY unfinished";
}

struct frame {
	uint8_t type;
	const uint8_t *body;
	size_t size;
};

/* The message at `*at`, which is moved behind it. */
static enum verdict next_frame(const struct connection *one, size_t *at, struct frame *frame)
{
	size_t rest = one->answer_len - *at;
	if (rest < 5) {
		return MORE;
	}
	uint32_t len = number(one->answer + *at + 1);
	if (len < 4 || len > sizeof one->answer) {
		return BAD;
	}
	if (rest - 1 < len) {
		return MORE;
	}
	*frame = (struct frame){one->answer[*at], one->answer + *at + 5, len - 4};
	*at += 1 + len;
	return GOOD;
}

/* The only column of a row; NULL when there is another number of them, or it is NULL. */
static const uint8_t *only_column(const struct frame *row, size_t *len)
{
	if (row->type != 'D' || row->size < 6 || row->body[0] != 0 || row->body[1] != 1 ||
	    number(row->body + 2) != row->size - 6) {
		return NULL;
	}
	*len = row->size - 6;
	return row->body + 6;
}

/* One row of one column, and no transaction open; and no setting that has changed by itself, for the client has not
 * heard of it. */
static enum verdict judge_row(struct connection *one)
{
	size_t at = 0, len = 0;
	bool found = false;
	for (struct frame frame;;) {
		enum verdict verdict = next_frame(one, &at, &frame);
		if (verdict != GOOD) {
			return verdict;
		}
		const uint8_t *text = only_column(&frame, &len);
		if (text != NULL && !found && len < sizeof one->before) {
			found = true;
			one->found_at = (size_t)(text - one->answer);
		} else if (frame.type == 'Z') {
			return found && frame.size == 1 && frame.body[0] == 'I' && at == one->answer_len ? GOOD : BAD;
		} else if (frame.type == 'D' || frame.type == 'E' || frame.type == 'S') {
			return BAD;
		}
	}
}

/* What decides, and what must be nothing: prepared statements, cursors, locks, names listened to, temporary tables. */
static const char description[] =
    "SELECT concat_ws(' ', (SELECT count(*) FROM pg_prepared_statements) + (SELECT count(*) FROM pg_cursors) + "
    "(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory') + "
    "(SELECT count(*) FROM pg_listening_channels()) + pg_my_temp_schema()::bigint, current_user, session_user, "
    "(SELECT md5(string_agg(name || '=' || setting, ',' ORDER BY name)) FROM pg_settings "
    "WHERE context IN ('user', 'superuser')))";

/* What is asked after each reset. No schema can hide these functions. The first two are what libpq quotes by, and are
 * set again. */
static const char question[] =
    "SELECT pg_catalog.concat_ws(' ',pg_catalog.current_setting('standard_conforming_strings'),"
    "pg_catalog.current_setting('client_encoding'),pg_catalog.current_setting('DateStyle'),"
    "pg_catalog.current_setting('IntervalStyle'),pg_catalog.current_setting('TimeZone'),"
    "pg_catalog.current_setting('search_path'),pg_catalog.current_setting('default_transaction_isolation'),"
    "pg_catalog.current_setting('default_transaction_read_only'),"
    "pg_catalog.current_setting('default_transaction_deferrable'),pg_catalog.current_setting('role'),"
    "pg_catalog.pg_is_in_recovery())";

static bool ask(struct connection *one, const char *statement, size_t len, char *to, size_t room)
{
	uint8_t text[MOST_QUESTION] = {'Q', 0, 0};
	text[3] = (uint8_t)((len + 5) >> 8);
	text[4] = (uint8_t)(len + 5);
	memcpy(text + 5, statement, len + 1);
	if (!connection_ask(one, text, len + 6, judge_row)) {
		return false;
	}
	const uint8_t *found = one->answer + one->found_at;
	size_t size = number(found - 4);
	if (size >= room) {
		return false;
	}
	memcpy(to, found, size);
	to[size] = '\0';
	return true;
}
#define ASK(one, statement, to) ask(one, statement, sizeof(statement) - 1, to, sizeof(to))

/* The value of one of the first two, up to the space behind it. */
static size_t setting(const struct connection *one, unsigned i, const char **value)
{
	*value = one->told + (i == 0 ? 0 : strcspn(one->told, " ") + 1);
	return strcspn(*value, " ");
}

static void settle(struct connection *one)
{
	const char *value;
	if (!one->started || left(one) != NULL || one->tail[5] != 'I') {
		connection_declined(one, "it is in the middle of an exchange, or a transaction is open on it");
	} else if (!ASK(one, description, one->before) || !ASK(one, question, one->told) ||
	           setting(one, 0, &value) > MOST_VALUE || setting(one, 1, &value) > MOST_VALUE) {
		connection_declined(one, "its server does not say how it is, or has just changed a setting");
	} else if (strncmp(one->before, "0 ", 2) != 0) {
		connection_declined(one, "a prepared statement, a cursor, a lock, a temporary table or a LISTEN of before the "
		                         "snapshot is open on it");
	}
}

static void compare(struct connection *one)
{
	static char after[sizeof one->before];
	if (!ASK(one, description, after) || strcmp(after, one->before) != 0) {
		connection_declined(one, "after its server has put it back it is not as it was");
	}
}

static void put(uint8_t *to, size_t *at, const void *statement, size_t len)
{
	uint8_t head[5] = {'Q', 0, 0, (uint8_t)((len + 5) >> 8), (uint8_t)(len + 5)};
	memcpy(to + *at, head, sizeof head);
	memcpy(to + *at + sizeof head, statement, len);
	to[*at + sizeof head + len] = '\0';
	*at += sizeof head + len + 1;
}
#define PUT(to, at, statement) put(to, at, statement, sizeof(statement) - 1)

/* Functions of pg_catalog by their numbers, which PostgreSQL never gives to others: no schema can hide them. */
#define SET_CONFIG 2078u
#define SETSEED 1599u
#define ABS_OF_BIGINT 1396u
#define CALLS 4

/* Of a function of one argument of eight bytes; argument and result are binary. */
static void put_call(uint8_t *to, size_t *at, uint32_t function, const uint8_t argument[8])
{
	uint8_t call[29] = {'F', 0, 0, 0, 28, [10] = 1, [12] = 1, [14] = 1, [18] = 8, [28] = 1};
	call[5] = (uint8_t)(function >> 24);
	call[6] = (uint8_t)(function >> 16);
	call[7] = (uint8_t)(function >> 8);
	call[8] = (uint8_t)function;
	memcpy(call + 19, argument, 8);
	memcpy(to + *at, call, sizeof call);
	*at += sizeof call;
}

static void put_number(uint8_t *to, size_t *at, size_t bytes, uint32_t number)
{
	for (size_t i = 0; i < bytes; i++) {
		to[(*at)++] = (uint8_t)(number >> 8 * (bytes - 1 - i));
	}
}

/* set_config(name, value, false). */
static void put_setting(uint8_t *to, size_t *at, const char *name, const char *value, size_t len)
{
	const size_t name_len = strlen(name);
	to[(*at)++] = 'F';
	put_number(to, at, 4, (uint32_t)(4 + 4 + 4 + 2 + 4 + name_len + 4 + len + 4 + 1 + 2));
	put_number(to, at, 4, SET_CONFIG);
	put_number(to, at, 4, 1u << 16 | 1); /* one format for all, which is binary */
	put_number(to, at, 2, 3);
	put_number(to, at, 4, (uint32_t)name_len);
	memcpy(to + *at, name, name_len);
	*at += name_len;
	put_number(to, at, 4, (uint32_t)len);
	memcpy(to + *at, value, len);
	*at += len;
	put_number(to, at, 4, 1);
	put_number(to, at, 1, 0);
	put_number(to, at, 2, 1);
}

/* A double from 1 to below 2 has any 52 bits behind its exponent, and setseed() takes one from -1 to 1. */
static void seed_of(const uint8_t random[8], uint8_t seed[8])
{
	uint64_t bits = 0;
	double from_one;
	for (size_t i = 0; i < 8; i++) {
		bits = bits << 8 | random[i];
	}
	bits = bits >> 12 | UINT64_C(0x3ff) << 52;
	memcpy(&from_one, &bits, sizeof bits);
	from_one -= 1;
	memcpy(&bits, &from_one, sizeof bits);
	for (size_t i = 0; i < 8; i++) {
		seed[i] = (uint8_t)(bits >> (56 - 8 * i));
	}
}

static size_t reset(struct connection *one, uint8_t *to, size_t room)
{
	uint8_t random[16], seed[8];
	const char *value;
	size_t at = 0, len;
	if (room < one->again_len + sizeof question + 512 || !connection_random(random, sizeof random)) {
		return 0;
	}
	one->queries = 1;
	if (one->tail[5] != 'I') {
		PUT(to, &at, "ROLLBACK");
		one->queries++;
	}
	PUT(to, &at, "DISCARD ALL");
	if (one->again_count > 0) {
		put(to, &at, one->again, one->again_len);
		one->queries++;
	}
	/* By the settings that come next a client quotes right, whatever the server has become. */
	uint64_t now = connection_now();
	one->asks = !one->kept || now - one->asked_at >= ASK_NS;
	if (one->asks) {
		one->asked_at = now;
		PUT(to, &at, question);
		one->queries++;
	}
	len = setting(one, 0, &value);
	put_setting(to, &at, "standard_conforming_strings", value, len);
	len = setting(one, 1, &value);
	put_setting(to, &at, "client_encoding", value, len);
	/* DISCARD ALL forgets setseed() as little as it forgets that random() was asked. */
	seed_of(random, seed);
	put_call(to, &at, SETSEED, seed);
	memcpy(one->echo, random + 8, sizeof one->echo);
	one->echo[0] &= 0x7f; /* a positive number is its own absolute value */
	put_call(to, &at, ABS_OF_BIGINT, one->echo);
	return at;
}

static enum verdict judge_reset(struct connection *one)
{
	static const uint8_t eight[] = {0, 0, 0, 8};
	size_t at = 0, len;
	unsigned completed = 0, ready = 0;
	bool found = false;
	for (struct frame frame;;) {
		enum verdict verdict = next_frame(one, &at, &frame);
		if (verdict != GOOD) {
			return verdict;
		}
		/* The settings, if there are some, and the question, if it was asked, are the last queries; then come the
		 * calls. */
		bool asks = one->asks && ready == one->queries - 1, call = ready >= one->queries,
		     last = ready == one->queries + CALLS - 1;
		unsigned settings = one->queries - (one->asks ? 2 : 1);
		unsigned due = one->again_count > 0 && ready == settings ? one->again_count : 1;
		if (asks && frame.type == 'D' && !found) {
			const uint8_t *text = only_column(&frame, &len);
			found = text != NULL;
			one->changed = !found || len != strlen(one->told) || memcmp(text, one->told, len) != 0;
			if (one->changed) {
				return BAD;
			}
		} else if (frame.type == (call ? 'V' : 'C') && completed < due && (!asks || found)) {
			if (last && (frame.size != 12 || memcmp(frame.body, eight, 4) != 0 ||
			             memcmp(frame.body + 4, one->echo, sizeof one->echo) != 0)) {
				return BAD;
			}
			completed++;
		} else if (frame.type == 'Z' && completed == due && frame.size == 1 && frame.body[0] == 'I') {
			ready++;
			completed = 0;
			if (last) {
				return at == one->answer_len ? GOOD : BAD;
			}
		} else if (frame.type != 'S' && frame.type != 'N' && !(asks && frame.type == 'T')) {
			return BAD;
		}
	}
}

static void rested(struct connection *one)
{
	static const uint8_t idle[] = {'Z', 0, 0, 0, 5, 'I'};
	memcpy(one->tail, idle, sizeof idle);
}

static const uint8_t goodbye[] = {'X', 0, 0, 0, 4};

const struct protocol protocol_pgsql = {
    .name = "PostgreSQL",
    .is = is,
    .message_size = message_size,
    .said = said,
    .heard = heard,
    .settle = settle,
    .compare = compare,
    .left = left,
    .reset = reset,
    .judge_reset = judge_reset,
    .rested = rested,
    .goodbye = goodbye,
    .goodbye_len = sizeof goodbye,
};
