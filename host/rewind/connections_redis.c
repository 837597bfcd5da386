/*
 * Redis, protocol 2. A command is an array of strings. RESET (Redis 6.2) forgets the user, the database, a transaction,
 * watched keys, subscriptions, the connection's name. Whether an answer was outstanding is not looked at: the last
 * command asks for a word that nobody can have foreseen, and the whole answer has to be the expected one.
 */
#include "connections_internal.h"

#include <string.h>
#include <strings.h>

#define MOST_WORDS 8

static bool is(bool client, const uint8_t *bytes)
{
	return client && bytes[0] == '*' && bytes[1] >= '1' && bytes[1] <= '9' &&
	       (bytes[2] == '\r' || (bytes[2] >= '0' && bytes[2] <= '9'));
}

/* The number of a line that begins with `sign`; `*at` is moved behind the line. -1: it is not all there, -2: it is
 * none. */
static long line(uint8_t sign, const uint8_t *bytes, size_t have, size_t *at)
{
	long value = 0;
	size_t i = *at;
	if (i >= have) {
		return -1;
	}
	if (bytes[i++] != sign) {
		return -2;
	}
	for (; i < have && bytes[i] >= '0' && bytes[i] <= '9'; i++) {
		if (value > 1l << 30) {
			return -2;
		}
		value = value * 10 + (bytes[i] - '0');
	}
	if (have - i < 2) {
		return -1;
	}
	if (bytes[i] != '\r' || bytes[i + 1] != '\n') {
		return -2;
	}
	*at = i + 2;
	return value;
}

struct words {
	const char *at[MOST_WORDS];
	size_t len[MOST_WORDS];
	size_t count;
};

static size_t parse(const uint8_t *bytes, size_t have, struct words *words)
{
	size_t at = 0;
	long count = line('*', bytes, have, &at);
	words->count = 0;
	for (long i = 0; i < count; i++) {
		long len = line('$', bytes, have, &at);
		if (len < 0) {
			return len == -1 ? 0 : BAD_MESSAGE;
		}
		if (at + (size_t)len + 2 > have) {
			/* The last one's size is known then, if this is it. */
			return i + 1 == count ? at + (size_t)len + 2 : 0;
		}
		if (words->count < MOST_WORDS) {
			words->at[words->count] = (const char *)bytes + at;
			words->len[words->count++] = (size_t)len;
		}
		at += (size_t)len + 2;
	}
	return count == -1 ? 0 : count <= 0 ? BAD_MESSAGE : at;
}

static size_t message_size(const struct connection *one, const uint8_t *bytes, size_t have)
{
	struct words words;
	return parse(bytes, have, &words);
}

static bool word(const struct words *words, size_t i, const char *name)
{
	return i < words->count && words->len[i] == strlen(name) && strncasecmp(words->at[i], name, words->len[i]) == 0;
}

static bool any_word(const struct words *words, size_t i, const char *const *names, size_t count)
{
	for (size_t n = 0; n < count; n++) {
		if (word(words, i, names[n])) {
			return true;
		}
	}
	return false;
}
#define ANY_WORD(words, i, names) any_word(words, i, names, sizeof(names) / sizeof(names)[0])

static void said(struct connection *one, const uint8_t *message, size_t len, bool whole)
{
	static const char *const doubtful[] = {
	    "HELLO",      "MULTI",    "EXEC",        "DISCARD",      "WATCH",        "UNWATCH",   "SUBSCRIBE", "PSUBSCRIBE",
	    "SSUBSCRIBE", "MONITOR",  "QUIT",        "RESET",        "READONLY",     "READWRITE", "ASKING",    "SYNC",
	    "PSYNC",      "REPLCONF", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "SCRIPT",    "DEBUG"};
	static const char *const again[] = {"AUTH", "SELECT"};
	static const char *const of_client[] = {"SETNAME", "SETINFO", "NO-EVICT", "NO-TOUCH"};
	static const char *const asks_client[] = {"ID", "INFO", "LIST", "GETNAME"};
	struct words words;
	(void)parse(message, len, &words);
	bool client = word(&words, 0, "CLIENT");
	if (words.count == 0 || ANY_WORD(&words, 0, doubtful) ||
	    (client && !ANY_WORD(&words, 1, of_client) && !ANY_WORD(&words, 1, asks_client))) {
		char why[200];
		snprintf(why, sizeof why, "before the snapshot it was told the command %.*s, which cannot be repeated",
		         words.count == 0 || words.len[0] > 40 ? 0 : (int)words.len[0], words.count == 0 ? "" : words.at[0]);
		connection_declined(one, why);
	} else if (ANY_WORD(&words, 0, again) || (client && ANY_WORD(&words, 1, of_client))) {
		if (!whole) {
			connection_declined(one, "before the snapshot it was told a command of more than 16 KiB");
			return;
		}
		connection_append(one, message, len);
		one->again_count++;
	}
}

static void heard(struct connection *one, const uint8_t *bytes, size_t len)
{
}

static const char *left(const struct connection *one)
{
	return one->asked ? "it did not read the answer to what it asked" : NULL;
}

/* One string. */
static enum verdict judge_text(struct connection *one)
{
	size_t at = 0;
	long len = line('$', one->answer, one->answer_len, &at);
	if (len < 0) {
		return len == -1 ? MORE : BAD;
	}
	one->found_at = at;
	return one->answer_len - at < (size_t)len + 2 ? MORE : one->answer_len - at == (size_t)len + 2 ? GOOD : BAD;
}

/* The value of one field of CLIENT INFO, up to the space behind it. */
static bool field_is(const char *text, const char *name, const char *value)
{
	char wanted[64];
	snprintf(wanted, sizeof wanted, " %s=%s ", name, value);
	return strstr(text, wanted) != NULL;
}

/* What CLIENT INFO says of things that last: the fields, each once. */
static bool describe(struct connection *one, char *to, size_t room)
{
	static const uint8_t question[] = "*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n";
	static const char *const lasting[] = {
	    " name=", " db=", " sub=", " psub=", " ssub=", " multi=", " flags=", " user=", " resp=", " redir="};
	if (!connection_ask(one, question, sizeof question - 1, judge_text)) {
		return false;
	}
	char text[2048];
	size_t size = one->answer_len - one->found_at - 2;
	if (size >= sizeof text) {
		return false;
	}
	memcpy(text, one->answer + one->found_at, size);
	text[size] = '\0';
	/* N: nothing in particular, U: over a unix socket. */
	if ((!field_is(text, "flags", "N") && !field_is(text, "flags", "U")) || !field_is(text, "multi", "-1")) {
		return false;
	}
	size_t used = 0;
	to[0] = '\0';
	for (size_t i = 0; i < sizeof lasting / sizeof lasting[0]; i++) {
		const char *found = strstr(text, lasting[i]);
		int n = found == NULL ? 0
		                      : snprintf(to + used, room - used, "%s%.*s", lasting[i],
		                                 (int)strcspn(found + strlen(lasting[i]), " \n"), found + strlen(lasting[i]));
		if (n < 0 || (size_t)n >= room - used) {
			return false;
		}
		used += (size_t)n;
	}
	return true;
}

static void settle(struct connection *one)
{
	if (!describe(one, one->before, sizeof one->before)) {
		connection_declined(one,
		                    "its server does not say how it is (CLIENT INFO, Redis 6.2), or it is in the middle of "
		                    "something");
	}
}

static void compare(struct connection *one)
{
	char after[2048];
	if (!describe(one, after, sizeof after) || strcmp(after, one->before) != 0) {
		connection_declined(one, "after its server has put it back it is not as it was");
	}
}

static size_t reset(struct connection *one, uint8_t *to, size_t room)
{
	static const char first[] = "*1\r\n$5\r\nRESET\r\n", digits[] = "0123456789abcdef";
	uint8_t random[8];
	if (room < one->again_len + 128 || !connection_random(random, sizeof random)) {
		return 0;
	}
	for (size_t i = 0; i < sizeof random; i++) {
		one->nonce[2 * i] = digits[random[i] >> 4];
		one->nonce[2 * i + 1] = digits[random[i] & 15];
	}
	one->nonce[16] = '\0';
	memcpy(to, first, sizeof first - 1);
	memcpy(to + sizeof first - 1, one->again, one->again_len);
	size_t at = sizeof first - 1 + one->again_len;
	return at + (size_t)snprintf((char *)to + at, room - at, "*2\r\n$4\r\nECHO\r\n$16\r\n%s\r\n", one->nonce);
}

static enum verdict judge_reset(struct connection *one)
{
	static const char first[] = "+RESET\r\n", each[] = "+OK\r\n";
	char last[32];
	size_t at = 0;
	int last_len = snprintf(last, sizeof last, "$16\r\n%s\r\n", one->nonce);
	for (unsigned i = 0; i < one->again_count + 2; i++) {
		const char *wanted = i == 0 ? first : i <= one->again_count ? each : last;
		size_t len = i == 0 ? sizeof first - 1 : i <= one->again_count ? sizeof each - 1 : (size_t)last_len;
		size_t rest = one->answer_len - at;
		if (memcmp(one->answer + at, wanted, rest < len ? rest : len) != 0) {
			return BAD;
		}
		if (rest < len) {
			return MORE;
		}
		at += len;
	}
	return at == one->answer_len ? GOOD : BAD;
}

static void rested(struct connection *one)
{
}

const struct protocol protocol_redis = {
    .name = "Redis",
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
    .goodbye = (const uint8_t *)"",
    .goodbye_len = 0,
};
