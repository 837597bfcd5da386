/* What connections.c and the protocols share. */
#ifndef HAYATE_REWIND_CONNECTIONS_INTERNAL_H
#define HAYATE_REWIND_CONNECTIONS_INTERNAL_H

#include "connections.h"
#include "internal.h"

/* Kept by one process at the same time. */
#define MAX_CONNECTIONS 16
/* A message of the client's that is looked at as a whole. */
#define MOST_MESSAGE 16384
/* What is said again after each request. */
#define MOST_AGAIN 8192
/* A shorter form of it, where that will do. */
#define MOST_BRIEF 4096
/* What a server is asked about a connection. */
#define MOST_QUESTION 2048
/* How often a server is asked how it is, at most, in ns: it takes longer than to put the connection back. */
#define ASK_NS 1000000000u
/* By which a protocol is recognised. */
#define FIRST_BYTES 8
/* A value of PostgreSQL's that is set again. */
#define MOST_VALUE 64
#define BAD_MESSAGE SIZE_MAX

enum verdict { MORE, GOOD, BAD };

struct protocol;

struct connection {
	bool kept;
	bool recorded;     /* what the client says is its own from here on, and not to be said again */
	bool touched;      /* bytes passed since it was put back */
	bool asked;        /* the last of them were the client's: an answer is to come, but for some commands of MySQL's */
	bool resetting;    /* the answers to what puts it back are to come */
	bool broken;       /* no more is to be said on it */
	bool disturbed;    /* its server was told to forget, or has not answered as expected */
	bool changed;      /* it was put back, and is not as it was: its server's settings are others */
	bool asks;         /* what puts it back ends with a question */
	bool plain;        /* MySQL: a backslash in a text is one */
	uint64_t asked_at; /* when its server was last asked how it is, in ns */
	bool silent;       /* its server was waited for in vain */
	bool gone;         /* so it was, or its server has closed it */
	unsigned opener;
	int fd, pid;
	const struct protocol *protocol;
	char why[256]; /* it is not kept; empty: nothing speaks against it */
	size_t skip;   /* bytes of a long message that are still to pass */
	size_t have;   /* bytes in `message` */
	size_t again_len;
	unsigned again_count; /* statements in `again` */

	/* MySQL */
	bool agreed;          /* the client's first packet has gone: what follows are commands */
	bool waiting;         /* a command was sent of whose answer nothing has come yet */
	const char *confused; /* why how it is cannot be told any more; NULL: it can */
	bool first_packet;    /* of an answer is the one that comes */
	bool sends_file;      /* what the client says is a file that the server has asked for */
	bool sent_file;       /* to its end: what comes next says how it was taken */
	uint8_t head[4];      /* of the packet that comes */
	uint8_t head_len;     /* 4 while its body comes */
	size_t body_left;
	uint8_t sequence;  /* of the last packet that came */
	uint8_t start[21]; /* the first bytes of its body: an OK, as far as its state */
	uint8_t start_len;
	bool long_packet;             /* the next one goes on with it */
	unsigned ends;                /* of columns and rows in the present result */
	bool ended;                   /* the last packet was the end of the last result */
	bool profiles;                /* its server knows profiling */
	bool seeds;                   /* its server lets this user seed RAND() */
	size_t dialect;               /* which names of variables its server knows */
	long statements;              /* prepared and not closed */
	bool moved;                   /* another database or role may have been chosen */
	unsigned answers;             /* to what was said to put it back */
	size_t brief_len, asking_len; /* 0: there is no shorter form */
	/* PostgreSQL */
	bool started; /* past the first message, which has no type */
	uint8_t tail[6];
	unsigned queries; /* that put it back; then come the calls of functions */
	uint8_t echo[8];  /* what the last of them has to say */
	/* Redis */
	char nonce[17];
	/* All of them */
	size_t answer_len;
	size_t found_at; /* the text in `answer` that was asked for */
	/* The first bytes, until it is known which protocol they are. */
	bool first_of_client;
	uint8_t first[FIRST_BYTES];
	size_t first_len;

	uint8_t message[MOST_MESSAGE];
	uint8_t again[MOST_AGAIN]; /* what the server is told when it has forgotten, in its own format */
	uint8_t brief[MOST_BRIEF], asking[MOST_BRIEF]; /* of MySQL, the second one asks how it is */
	uint8_t answer[8192];
	char before[4096]; /* how the server described it */
	char told[1024];   /* MySQL, PostgreSQL: of that, what is asked after each reset */
};

struct protocol {
	const char *name;
	/* Whether these FIRST_BYTES are the first that the client, or the server, says. */
	bool (*is)(bool client, const uint8_t *bytes);
	/* The client's messages are looked at after the point as well. */
	bool follows;
	/* Bytes of the message that begins here, 0 when that is not known yet, BAD_MESSAGE when it is none. */
	size_t (*message_size)(const struct connection *one, const uint8_t *bytes, size_t have);
	/* A message of the client's; not `whole`: its beginning. */
	void (*said)(struct connection *one, const uint8_t *message, size_t len, bool whole);
	void (*heard)(struct connection *one, const uint8_t *bytes, size_t len);
	/* Before the first reset: asks how it is, and completes what is said again. */
	void (*settle)(struct connection *one);
	/* After it: what else has to be tried. */
	void (*compare)(struct connection *one);
	/* NULL: as far as can be seen, no answer is outstanding, and no half message was sent. Or what was left. */
	const char *(*left)(const struct connection *one);
	/* Writes what puts it back, and asks whether it is as it was; 0 when there is no room. */
	size_t (*reset)(struct connection *one, uint8_t *to, size_t room);
	enum verdict (*judge_reset)(struct connection *one);
	void (*rested)(struct connection *one);
	const uint8_t *goodbye;
	size_t goodbye_len;
};

extern const struct protocol protocol_mysql, protocol_pgsql, protocol_redis;

void connection_declined(struct connection *one, const char *why);
void connection_append(struct connection *one, const void *bytes, size_t len);
/* Asks and reads the answer, which is in one->answer when the judge finds it GOOD. Five seconds at most. */
bool connection_ask(struct connection *one, const uint8_t *question, size_t len,
                    enum verdict (*judge)(struct connection *one));
/* CLOCK_MONOTONIC in ns. */
uint64_t connection_now(void);
/* At most 256 bytes that nobody can have foreseen. False: there are none. */
bool connection_random(uint8_t *to, size_t len);

/* statements.c: what an SQL statement that was sent before the point means for the connection */
enum effect { EFFECT_NONE, EFFECT_SETTING, EFFECT_UNKNOWN };
/* A word that may choose another database or role; MariaDB's profiling, whose record stays. */
#define WORD_MOVES 1u
#define WORD_STAYS 2u
/* Which of them a statement of a request holds, in capitals or not, or several statements in one. */
unsigned statement_words(const uint8_t *text, size_t len);
enum effect statement_effect(const char *text, size_t len);
/* Of a statement that is a setting: moves to the variables that it sets, and says how long they are, so that one
 * statement can set those of several. 0: it is of another kind, and can only be said as it is. */
size_t statement_variables(const char **statement, size_t len);

#endif
