/*
 * MySQL and MariaDB: what is said is followed. A packet has three bytes of length, least first, a sequence number, and
 * a body. A command begins with number 0, and the packets of its answer are numbered on from there; so a packet with
 * number 1 after another number than 0 begins a new answer, and what came before it was read to its end. That is all
 * that has to be known of answers to tell whether one is outstanding. But for LOAD DATA LOCAL: the server's first
 * packet asks for a file, whose packets the client numbers on in its turn, until an empty one.
 */
#include "connections_mysql.h"

#include <string.h>

/* The server speaks first: protocol version 10. */
static bool is(bool client, const uint8_t *bytes)
{
	return !client && bytes[3] == 0 && bytes[4] == 10 && bytes[5] >= '0' && bytes[5] <= '9';
}

static size_t message_size(const struct connection *one, const uint8_t *bytes, size_t have)
{
	return have < 4 ? 0 : 4 + (size_t)mysql_length(bytes);
}

static void agree(struct connection *one, const uint8_t *body, size_t len)
{
	uint32_t flags = len < 4 ? 0 : body[0] | (uint32_t)body[1] << 8 | (uint32_t)body[2] << 16 | (uint32_t)body[3] << 24;
	one->agreed = true;
	if (flags & CLIENT_SSL) {
		connection_declined(one, "it is encrypted (TLS), and both ends count what they have said");
	} else if (len < 32 || flags & (CLIENT_COMPRESS | CLIENT_ZSTD)) {
		connection_declined(one, "it is compressed");
	} else if (flags & (CLIENT_DEPRECATE_EOF | CLIENT_QUERY_ATTRIBUTES)) {
		connection_declined(one, "its client speaks a dialect of the protocol that Hayate does not know");
	}
}

/* Adds a command to those in `to`; false: there is no room for it. */
bool mysql_put_packet(uint8_t *to, size_t room, size_t *at, uint8_t command, const char *text, size_t len)
{
	const uint8_t head[5] = {(uint8_t)(len + 1), (uint8_t)((len + 1) >> 8), (uint8_t)((len + 1) >> 16), 0, command};
	if (room - *at < sizeof head || room - *at - sizeof head < len) {
		return false;
	}
	memcpy(to + *at, head, sizeof head);
	memcpy(to + *at + sizeof head, text, len);
	*at += sizeof head + len;
	return true;
}

void mysql_say_again(struct connection *one, uint8_t command, const char *text, size_t len)
{
	if (!mysql_put_packet(one->again, sizeof one->again, &one->again_len, command, text, len)) {
		connection_declined(one, "more was said on it than Hayate repeats after each request");
	}
	one->again_count++;
}

static void note_statement(struct connection *one, const uint8_t *message, size_t size, bool prepared)
{
	enum effect effect = statement_effect((const char *)message + 5, size - 5);
	bool bound = prepared && effect == EFFECT_SETTING && memchr(message + 5, '?', size - 5) != NULL;
	if (effect == EFFECT_UNKNOWN || bound) {
		char why[200];
		snprintf(why, sizeof why, "before the snapshot it was told \"%.*s\", which cannot be repeated",
		         size - 5 < 80 ? (int)(size - 5) : 80, (const char *)message + 5);
		connection_declined(one, why);
	} else if (effect == EFFECT_SETTING) {
		/* As a query, also where it was prepared: Laravel prepares its settings, and executes them once. */
		mysql_say_again(one, COM_QUERY, (const char *)message + 5, size - 5);
	}
}

/* Leaves nothing behind that a reset would not undo. */
static bool is_undone(uint8_t command)
{
	switch (command) {
	case COM_QUERY:
	case COM_INIT_DB:
	case COM_STATISTICS:
	case COM_PING:
	case COM_STMT_PREPARE:
	case COM_STMT_EXECUTE:
	case COM_STMT_SEND_LONG_DATA:
	case COM_STMT_CLOSE:
	case COM_STMT_RESET:
	case COM_STMT_FETCH:
	case COM_RESET_CONNECTION:
		return true;
	default:
		return false;
	}
}

static void note_command(struct connection *one, const uint8_t *message, size_t size, bool whole)
{
	switch (message[4]) {
	case COM_QUERY:
	case COM_STMT_PREPARE:
		one->statements += message[4] == COM_STMT_PREPARE;
		if (!whole) {
			connection_declined(one, "before the snapshot it was told a statement of more than 16 KiB");
		} else {
			note_statement(one, message, size, message[4] == COM_STMT_PREPARE);
		}
		break;
	case COM_STMT_CLOSE:
		one->statements--;
		break;
	case COM_INIT_DB:
	case COM_STATISTICS:
	case COM_PING:
	case COM_STMT_EXECUTE:
	case COM_STMT_SEND_LONG_DATA:
	case COM_STMT_RESET:
	case COM_STMT_FETCH:
		break;
	default:
		connection_declined(one, "before the snapshot it was told a command that Hayate cannot repeat");
	}
}

static void confuse(struct connection *one, const char *why)
{
	one->confused = one->confused == NULL ? why : one->confused;
}

static void note_request(struct connection *one, const uint8_t *message, size_t len, bool whole)
{
	unsigned words = 0;
	if (!is_undone(message[4])) {
		confuse(one, "it changed the user or an option of the connection (change_user() and persistent connections of "
		             "mysqli, multi_query()), which no reset undoes");
	}
	one->moved |= message[4] == COM_INIT_DB || !whole;
	if (message[4] == COM_QUERY || message[4] == COM_STMT_PREPARE) {
		words = statement_words(message + 5, len - 5);
	}
	one->moved |= (words & WORD_MOVES) != 0;
	/* MariaDB's profiling outlives the reset: it is switched off after it, but what it has recorded stays. */
	if (words & WORD_STAYS) {
		confuse(one,
		        "it said CALL, EXECUTE IMMEDIATE, XA PREPARE or profiling, or prepared a text that was not to be seen: "
		        "no reset undoes all that these may do");
	}
}

static void said(struct connection *one, const uint8_t *message, size_t len, bool whole)
{
	if (!one->agreed) {
		agree(one, message + 4, len - 4);
		return;
	}
	if (one->sends_file) {
		bool empty = whole && len == 4;
		one->sends_file = !empty;
		one->sent_file = one->waiting = empty;
		return;
	}
	if (message[3] != 0) {
		return; /* more of what came before */
	}
	if (len < 5) {
		confuse(one, "it said what Hayate does not understand");
		return;
	}
	if (!one->recorded) {
		note_command(one, message, len, whole);
	} else {
		note_request(one, message, len, whole);
	}
	if (message[4] != COM_STMT_SEND_LONG_DATA && message[4] != COM_STMT_CLOSE) {
		if (one->waiting) {
			confuse(one, "it asked again before the answer to the last question had come");
		}
		one->waiting = true;
	}
}

/* Bytes of a number of variable length; such as an OK does not have: 9, the most. */
static size_t number_size(uint8_t first)
{
	return first < 0xfb ? 1 : first == 0xfc ? 3 : first == 0xfd ? 4 : 9;
}

/* Whether an answer of one packet, an OK or an error, is the last one to what was asked. */
static bool is_last(const struct connection *one)
{
	if (one->start_len > 0 && one->start[0] == ERROR) {
		return true;
	}
	/* How many rows, and the last number: then the state. */
	size_t at = one->start_len < 2 ? 0 : 1 + number_size(one->start[1]);
	at += at == 0 || at >= one->start_len ? sizeof one->start : number_size(one->start[at]);
	return one->start[0] == 0 && at < one->start_len && !(one->start[at] & MORE_RESULTS);
}

/* A packet of an answer is whole: counts what ends the columns and the rows of a result. */
static void note_packet(struct connection *one)
{
	uint32_t size = mysql_length(one->head);
	bool end = size == 5 && one->start[0] == 0xfe && !one->long_packet;
	one->ends += end;
	one->ended = (end && one->ends == 2 && !(one->start[3] & MORE_RESULTS)) ||
	             (one->first_packet && one->sent_file && is_last(one));
	one->sent_file &= !one->first_packet;
	one->ends = end && one->ends == 2 ? 0 : one->ends;
	one->sends_file = one->first_packet && one->start_len > 0 && one->start[0] == WANTS_FILE;
	one->first_packet = false;
	/* What follows a packet of the greatest length goes on with it. */
	one->long_packet = size == 0xffffff;
	one->head_len = 0;
}

static void heard(struct connection *one, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		if (one->head_len < 4) {
			one->head[one->head_len++] = *bytes++;
			len--;
			if (one->head_len == 4) {
				one->body_left = mysql_length(one->head);
				one->sequence = one->head[3];
				one->ends = one->waiting ? 0 : one->ends;
				one->first_packet = one->waiting;
				one->waiting = false;
				one->start_len = 0;
			}
		} else {
			size_t part = len < one->body_left ? len : one->body_left;
			for (size_t i = 0; i < part && one->start_len < sizeof one->start; i++) {
				one->start[one->start_len++] = bytes[i];
			}
			one->body_left -= part;
			bytes += part;
			len -= part;
		}
		if (one->head_len == 4 && one->body_left == 0) {
			note_packet(one);
		}
	}
}

/* After a packet with number 0, the 256th, comes one with number 1, as if it began another answer: so then there must
 * be none, for it was the end of a result, or what follows a file. */
const char *mysql_left(const struct connection *one)
{
	if (one->confused != NULL) {
		return one->confused;
	}
	if (one->waiting) {
		return "it did not read the answer to what it asked";
	}
	bool read = !one->sends_file && one->head_len == 0 && one->have == 0 && one->skip == 0;
	return read && (one->sequence != 0 || one->ended) ? NULL
	                                                  : "it left a result, a statement or a file half transmitted";
}

static const uint8_t goodbye[] = {1, 0, 0, 0, COM_QUIT};

const struct protocol protocol_mysql = {
    .name = "MySQL",
    .is = is,
    .follows = true,
    .message_size = message_size,
    .said = said,
    .heard = heard,
    .settle = mysql_settle,
    .compare = mysql_compare,
    .left = mysql_left,
    .reset = mysql_reset,
    .judge_reset = mysql_judge_reset,
    .rested = mysql_rested,
    .goodbye = goodbye,
    .goodbye_len = sizeof goodbye,
};
