/*
 * MySQL and MariaDB: how a connection is put back.
 *
 * COM_RESET_CONNECTION ends the transaction and forgets locks, temporary tables, prepared statements, variables. It
 * keeps the database, but not its encoding, and the role, and takes the server's encodings for the client's: those are
 * told again. It keeps the user as well, and whether one query may hold several statements: a request that changes
 * those costs its worker.
 */
#include "connections_mysql.h"

#include <string.h>

/* From `at` to the end: one row of one column that is text; or an error, with `found_at` 0. */
static enum verdict judge_row_at(struct connection *one, size_t at)
{
	const size_t first = at;
	for (unsigned packet = 1;; packet++) {
		const uint8_t *body = one->answer + at + 4;
		if (one->answer_len - at < 4 || one->answer_len - at - 4 < mysql_length(one->answer + at)) {
			return MORE;
		}
		size_t size = mysql_length(one->answer + at);
		if (one->answer[at + 3] != packet || size == 0) {
			return BAD;
		}
		if (body[0] == ERROR) {
			one->found_at = 0;
			return at == first && at + 4 + size == one->answer_len ? GOOD : BAD;
		}
		if (packet == 1 && (size != 1 || body[0] != 1)) {
			return BAD;
		}
		if (packet == 4) {
			/* A length of one byte, or 0xfc and two. */
			size_t skip = body[0] == 0xfc ? 3 : 1;
			size_t text = size < skip ? 0 : skip == 3 ? body[1] | (size_t)body[2] << 8 : body[0];
			if (body[0] > 0xfc || text + skip != size || text >= sizeof one->before) {
				return BAD;
			}
			one->found_at = at + 4 + skip;
		}
		if (packet == 5) {
			bool transaction = size == 5 && body[3] & (IN_TRANSACTION | MORE_RESULTS);
			return size == 5 && body[0] == 0xfe && !transaction && at + 4 + size == one->answer_len ? GOOD : BAD;
		}
		at += 4 + size;
	}
}

static enum verdict judge_row(struct connection *one)
{
	return judge_row_at(one, 0);
}

/* The text that a row at the end of the answer holds: behind it there is the last packet, of four and five bytes. */
static const char *found_text(const struct connection *one, size_t *len)
{
	*len = one->answer_len - 9 - one->found_at;
	return (const char *)one->answer + one->found_at;
}

/* Asks for one text; where it was found, and its length; NULL: there is none. */
static const char *ask(struct connection *one, const char *statement, size_t *len)
{
	uint8_t text[MOST_QUESTION];
	size_t size = 0;
	if (!mysql_put_packet(text, sizeof text, &size, COM_QUERY, statement, strlen(statement)) ||
	    !connection_ask(one, text, size, judge_row) || one->found_at == 0) {
		return NULL;
	}
	return found_text(one, len);
}

/* An OK or an error, which says that it may not be done. */
static enum verdict judge_done(struct connection *one)
{
	if (one->answer_len < 4 || one->answer_len - 4 < mysql_length(one->answer)) {
		return MORE;
	}
	bool good = one->answer[3] == 1 && mysql_length(one->answer) > 0 &&
	            one->answer_len == 4 + mysql_length(one->answer) && (one->answer[4] == 0 || one->answer[4] == ERROR);
	one->found_at = good && one->answer[4] == 0;
	return good ? GOOD : BAD;
}

/* Whether its server does that. */
static bool obeys(struct connection *one, const char *statement)
{
	uint8_t text[256];
	size_t size = 0;
	return mysql_put_packet(text, sizeof text, &size, COM_QUERY, statement, strlen(statement)) &&
	       connection_ask(one, text, size, judge_done) && one->found_at != 0;
}

/* Fields are divided by line ends, which have no backslash here: '\n' is two characters under NO_BACKSLASH_ESCAPES. The
 * first six have to be told again; the rest has to be as it was. MySQL and MariaDB differ in three names. */
#define FIELDS "SELECT CONCAT_WS(CHAR(10 USING utf8mb4),"
#define DESCRIPTION(of_dialect)                                                                                        \
	FIELDS "IFNULL(DATABASE(),''),@@character_set_client,@@character_set_connection,"                                  \
	       "IFNULL(@@character_set_results,'NULL'),@@collation_connection,IFNULL(CURRENT_ROLE(),'NONE'),"              \
	       "CURRENT_USER(),@@autocommit,@@sql_mode,@@time_zone,@@foreign_key_checks,@@unique_checks,"                  \
	       "@@sql_safe_updates,@@sql_select_limit,@@max_join_size,@@group_concat_max_len,@@lc_time_names,"             \
	       "@@lc_messages,@@sql_auto_is_null,@@auto_increment_increment,@@auto_increment_offset,@@wait_timeout,"       \
	       "@@net_read_timeout,@@net_write_timeout,@@sql_big_selects,@@low_priority_updates,@@default_week_format,"    \
	       "@@div_precision_increment,@@completion_type,@@sql_notes,@@sql_warnings,@@tmp_table_size,"                  \
	       "@@max_heap_table_size,@@sort_buffer_size,@@lock_wait_timeout,@@innodb_lock_wait_timeout,"                  \
	       "@@default_storage_engine,@@character_set_database,@@collation_database,@@character_set_server,"            \
	       "@@collation_server," of_dialect ")"
/*
 * What is asked after a reset. It takes up what was changed by SET GLOBAL meanwhile, of which the client's end, as it
 * was at the point, knows nothing: how it has to quote, what a statement means, that the server has become another's
 * replica, or does something for each new connection. The database and the encodings have just been set. To ask for all
 * of the description takes the server three times as long; and even this is more than to put the connection back, so it
 * is asked once a second, but for the role, which a reset of MariaDB's leaves, and for whether a backslash quotes,
 * which each answer says.
 */
#define ROLE "IFNULL(CURRENT_ROLE(),'NONE')"
#define QUESTION(of_dialect)                                                                                           \
	FIELDS ROLE ",@@autocommit,@@sql_mode,@@time_zone,IFNULL(@@init_connect,'')," of_dialect ",@@read_only)"
#define ISOLATION "@@transaction_isolation,@@transaction_read_only"
#define ISOLATION_BEFORE "@@tx_isolation,@@tx_read_only"
static const struct {
	const char *description, *question;
} dialects[] = {
    {DESCRIPTION(ISOLATION ",@@max_statement_time"), QUESTION(ISOLATION)}, /* MariaDB 11.1 */
    {DESCRIPTION(ISOLATION_BEFORE ",@@max_statement_time"), QUESTION(ISOLATION_BEFORE)},
    {DESCRIPTION(ISOLATION ",@@max_execution_time"), QUESTION(ISOLATION)}, /* MySQL */
};
#define DIALECTS (sizeof dialects / sizeof dialects[0])

static bool put(char *to, size_t room, size_t *len, const char *text, size_t size)
{
	if (room - *len <= size) {
		return false;
	}
	memcpy(to + *len, text, size);
	*len += size;
	to[*len] = '\0';
	return true;
}

/* A text as hexadecimal digits, which need no quotes. */
static bool put_hex(char *to, size_t room, size_t *len, const char *text, size_t size)
{
	bool fits = put(to, room, len, "0x", 2);
	for (size_t i = 0; fits && i < size; i++) {
		char digits[2] = {"0123456789abcdef"[(uint8_t)text[i] >> 4], "0123456789abcdef"[text[i] & 15]};
		fits = put(to, room, len, digits, 2);
	}
	return fits;
}

/* RAND() goes on where it was, and a visitor may have chosen where that is. Nine digits each, which each reset draws.
 */
#define SEEDS "rand_seed1=000000000,rand_seed2=000000000"

static bool draw_seeds(uint8_t *text, size_t len)
{
	static const char seed[] = "rand_seed", drawn[] = "=000000000";
	uint8_t *end = text + len;
	for (uint8_t *at = text; (at = memmem(at, (size_t)(end - at), seed, sizeof seed - 1)) != NULL;) {
		uint32_t random;
		at += sizeof seed - 1;
		if ((size_t)(end - at) < sizeof drawn || memcmp(at + 1, drawn, sizeof drawn - 1) != 0) {
			continue; /* of the application's own */
		}
		if (!connection_random((uint8_t *)&random, sizeof random)) {
			return false;
		}
		for (size_t i = 2; i <= sizeof drawn - 1; i++, random /= 10) {
			at[i] = (uint8_t)('0' + random % 10);
		}
	}
	return true;
}

/*
 * A reset, the database, since a reset forgets its encoding, and one SET of all variables; in the last one a question,
 * how the reset has left it, whose answer is `base`: all expressions of a SET are evaluated before it changes anything.
 * Where that is not so, the server says that there is no such encoding, and the connection was not put back.
 */
static size_t shorten(struct connection *one, uint8_t *to, const uint8_t *settings, size_t settings_len,
                      const char *const *field, const size_t *field_len, const char *asked, const char *base,
                      size_t base_len)
{
	static const char *const names[] = {
	    "character_set_client=", ",character_set_connection=", ",collation_connection=", ",character_set_results=IF("};
	static const int order[] = {1, 2, 4};
	char text[MOST_BRIEF / 2];
	size_t len = 0;
	bool fits = put(text, sizeof text, &len, "SET ", 4);
	for (size_t at = 0; fits && at < settings_len; at += 4 + mysql_length(settings + at)) {
		const char *set = (const char *)settings + at + 5;
		size_t size = statement_variables(&set, mysql_length(settings + at) - 1);
		fits = size > 0 && put(text, sizeof text, &len, set, size) && put(text, sizeof text, &len, ",", 1);
	}
	if (fits && one->profiles) {
		fits = put(text, sizeof text, &len, "profiling=0,", 12);
	}
	if (fits && one->seeds) {
		fits = put(text, sizeof text, &len, SEEDS ",", sizeof SEEDS);
	}
	for (size_t i = 0; fits && i < 3; i++) {
		fits = put(text, sizeof text, &len, names[i], strlen(names[i])) &&
		       put(text, sizeof text, &len, field[order[i]], field_len[order[i]]);
	}
	const bool null = field_len[3] == 4 && memcmp(field[3], "NULL", 4) == 0;
	fits = fits && put(text, sizeof text, &len, names[3], strlen(names[3])) &&
	       put(text, sizeof text, &len, asked, strlen(asked)) && put(text, sizeof text, &len, "=", 1) &&
	       put_hex(text, sizeof text, &len, base, base_len) &&
	       put(text, sizeof text, &len, null ? "," : ",'", null ? 1 : 2) &&
	       put(text, sizeof text, &len, field[3], field_len[3]) &&
	       put(text, sizeof text, &len, null ? ",'-')" : "','-')", null ? 5 : 6);
	size_t at = 0;
	fits = fits && mysql_put_packet(to, MOST_BRIEF, &at, COM_RESET_CONNECTION, "", 0) &&
	       mysql_put_packet(to, MOST_BRIEF, &at, COM_INIT_DB, field[0], field_len[0]) &&
	       mysql_put_packet(to, MOST_BRIEF, &at, COM_QUERY, text, len);
	return fits ? at : 0;
}
#define BRIEF_COUNT 3

static bool is_name(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_')) {
			return false;
		}
	}
	return len > 0;
}

/* Where the answers end that say OK, of one packet each, and that nothing was inserted or changed. */
static enum verdict judge_answers(struct connection *one, size_t *at)
{
	for (unsigned i = 0; i < one->answers; i++) {
		if (one->answer_len - *at < 4 || one->answer_len - *at - 4 < mysql_length(one->answer + *at)) {
			return MORE;
		}
		const uint8_t *body = one->answer + *at + 4;
		size_t size = mysql_length(one->answer + *at);
		if (one->answer[*at + 3] != 1 || size < 7 || body[0] != 0 || body[1] != 0 || body[2] != 0 ||
		    body[3] & (IN_TRANSACTION | MORE_RESULTS)) {
			one->changed = size >= 3 && body[0] == ERROR && (body[1] | body[2] << 8) == NO_SUCH_ENCODING;
			return BAD;
		}
		*at += 4 + size;
		/* As the last of them leaves it, which is how a client has to quote. */
		bool plain = (body[4] & NO_BACKSLASH_ESCAPES) != 0;
		if (i + 1 == one->answers && one->kept && plain != one->plain) {
			one->changed = true;
			return BAD;
		}
		one->plain = i + 1 == one->answers ? plain : one->plain;
	}
	return GOOD;
}

/* Those, and then a text. */
static enum verdict judge_told(struct connection *one)
{
	size_t at = 0;
	enum verdict verdict = judge_answers(one, &at);
	verdict = verdict == GOOD ? judge_row_at(one, at) : verdict;
	return verdict == GOOD && one->found_at == 0 ? BAD : verdict;
}

/* How a reset leaves it, before anything is set again. */
static bool ask_after_reset(struct connection *one, char *to, size_t room)
{
	const char *question = dialects[one->dialect].question;
	uint8_t text[MOST_QUESTION];
	size_t size = 0, len;
	one->answers = 1;
	if (!mysql_put_packet(text, sizeof text, &size, COM_RESET_CONNECTION, "", 0) ||
	    !mysql_put_packet(text, sizeof text, &size, COM_QUERY, question, strlen(question)) ||
	    !connection_ask(one, text, size, judge_told)) {
		return false;
	}
	const char *found = found_text(one, &len);
	bool fits = len < room;
	memcpy(to, found, fits ? len : 0);
	to[fits ? len : 0] = '\0';
	return fits;
}

void mysql_settle(struct connection *one)
{
	uint8_t settings[MOST_AGAIN];
	size_t settings_len = one->again_len, len;
	unsigned settings_count = one->again_count;
	if (!one->agreed || mysql_left(one) != NULL) {
		connection_declined(one, "it is in the middle of an exchange");
		return;
	}
	if (one->statements != 0) {
		connection_declined(one, "a statement was prepared on it before the snapshot, and not closed");
		return;
	}
	const char *found = NULL;
	for (one->dialect = 0; one->dialect < DIALECTS; one->dialect++) {
		found = ask(one, dialects[one->dialect].description, &len);
		if (found != NULL || one->disturbed) {
			break;
		}
	}
	if (found == NULL || len >= sizeof one->before) {
		connection_declined(one, "its server does not say how it is, or a transaction is open on it");
		return;
	}
	memcpy(one->before, found, len);
	one->before[len] = '\0';
	const char *field[6];
	size_t field_len[6];
	const char *at = one->before;
	for (int i = 0; i < 6; i++) {
		field[i] = at;
		field_len[i] = strcspn(at, "\n");
		at += field_len[i];
		if (field_len[i] == 0) {
			connection_declined(one, "no database is selected on it: name one where it is opened");
			return;
		}
		if (*at == '\0' || (i > 0 && i < 5 && !is_name(field[i], field_len[i]))) {
			connection_declined(one, "its server does not say how it is");
			return;
		}
		at++;
	}
	memcpy(settings, one->again, settings_len);
	if (ask(one, "SELECT @@init_connect", &len) == NULL || len > 0) {
		connection_declined(
		    one, "its server does for each connection what its init_connect says, which Hayate cannot repeat");
		return;
	}
	found = ask(one, dialects[one->dialect].question, &len);
	if (found == NULL || len >= sizeof one->told) {
		connection_declined(one, "its server does not say how it is");
		return;
	}
	memcpy(one->told, found, len);
	one->told[len] = '\0';
	char base[sizeof one->told];
	if (!ask_after_reset(one, base, sizeof base)) {
		connection_declined(one, "its server does not say how a reset leaves it");
		return;
	}
	one->profiles = ask(one, "SELECT @@profiling", &len) != NULL;
	one->seeds = obeys(one, "SET " SEEDS);
	one->again_len = 0;
	one->again_count = 0;
	mysql_say_again(one, COM_RESET_CONNECTION, "", 0);
	mysql_say_again(one, COM_INIT_DB, field[0], field_len[0]);
	char encodings[512], role[512];
	int n = snprintf(encodings, sizeof encodings,
	                 "SET %s%scharacter_set_client=%.*s,character_set_connection=%.*s,character_set_results=%.*s,"
	                 "collation_connection=%.*s",
	                 one->profiles ? "profiling=0," : "", one->seeds ? SEEDS "," : "", (int)field_len[1], field[1],
	                 (int)field_len[2], field[2], (int)field_len[3], field[3], (int)field_len[4], field[4]);
	connection_append(one, settings, settings_len);
	one->again_count += settings_count;
	/* Last: what was set before may have been another one. */
	if (n > 0 && (size_t)n < sizeof encodings) {
		mysql_say_again(one, COM_QUERY, encodings, (size_t)n);
	} else {
		connection_declined(one, "names of encodings are too long");
	}
	/* MySQL names roles as SET ROLE takes them, MariaDB without quotes. */
	one->brief_len = shorten(one, one->brief, settings, settings_len, field, field_len, ROLE, field[5], field_len[5]);
	one->asking_len = shorten(one, one->asking, settings, settings_len, field, field_len,
	                          dialects[one->dialect].question + sizeof "SELECT", base, strlen(base));
	n = snprintf(role, sizeof role, "SET ROLE %.*s", (int)field_len[5], field[5]);
	if (n > 0 && (size_t)n < sizeof role && (field[5][0] == '`' || is_name(field[5], field_len[5]))) {
		mysql_say_again(one, COM_QUERY, role, (size_t)n);
	} else {
		connection_declined(one, "the name of the role is not one that Hayate can repeat");
	}
}

/* What puts it back: in a short form, or in its long one and the question how it is. */
static size_t compose(struct connection *one, const uint8_t *brief, size_t brief_len, uint8_t *to, size_t room)
{
	const char *question = dialects[one->dialect].question;
	const uint8_t *text = brief == NULL ? one->again : brief;
	size_t len = brief == NULL ? one->again_len : brief_len;
	if (len > room) {
		return 0;
	}
	one->asks = brief == NULL;
	one->answers = brief == NULL ? one->again_count : BRIEF_COUNT;
	memcpy(to, text, len);
	if (one->seeds && !draw_seeds(to, len)) {
		return 0;
	}
	return brief != NULL || mysql_put_packet(to, room, &len, COM_QUERY, question, strlen(question)) ? len : 0;
}

size_t mysql_reset(struct connection *one, uint8_t *to, size_t room)
{
	uint64_t now = connection_now();
	bool due = now - one->asked_at >= ASK_NS;
	if (!one->kept || one->moved || one->brief_len == 0 || one->asking_len == 0) {
		one->asked_at = now;
		return compose(one, NULL, 0, to, room);
	}
	one->asked_at = due ? now : one->asked_at;
	return due ? compose(one, one->asking, one->asking_len, to, room)
	           : compose(one, one->brief, one->brief_len, to, room);
}

enum verdict mysql_judge_reset(struct connection *one)
{
	size_t at = 0, len;
	if (!one->asks) {
		enum verdict verdict = judge_answers(one, &at);
		return verdict == GOOD && at != one->answer_len ? BAD : verdict;
	}
	enum verdict verdict = judge_told(one);
	if (verdict == GOOD) {
		const char *found = found_text(one, &len);
		one->changed = len != strlen(one->told) || memcmp(found, one->told, len) != 0;
	}
	return verdict == GOOD && one->changed ? BAD : verdict;
}

static bool is_as_before(struct connection *one)
{
	size_t len;
	const char *found = ask(one, dialects[one->dialect].description, &len);
	return found != NULL && len == strlen(one->before) && memcmp(found, one->before, len) == 0;
}

/* The long form was said; now the short one. */
void mysql_compare(struct connection *one)
{
	bool good = is_as_before(one);
	if (good && one->brief_len > 0) {
		uint8_t text[MOST_BRIEF];
		size_t len = compose(one, one->brief, one->brief_len, text, sizeof text);
		good = len > 0 && connection_ask(one, text, len, mysql_judge_reset) && is_as_before(one);
		len = good && one->asking_len > 0 ? compose(one, one->asking, one->asking_len, text, sizeof text) : 0;
		good = good && (len == 0 || (connection_ask(one, text, len, mysql_judge_reset) && is_as_before(one)));
	}
	if (!good) {
		connection_declined(one, "after its server has put it back it is not as it was");
	}
	/* As after any answer. */
	one->sequence = 1;
	one->moved = false;
}

void mysql_rested(struct connection *one)
{
	one->sequence = 1;
	one->moved = false;
}
