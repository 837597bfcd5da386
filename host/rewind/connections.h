/*
 * Connections to databases that stay open over rewinds ("warm").
 *
 * The peer of a connection is not rewound: it keeps what was said to it. So after a request that used a connection the
 * server is told to forget (MySQL: COM_RESET_CONNECTION, PostgreSQL: DISCARD ALL, Redis: RESET), and is then told again
 * what it knew at the point. What that is, is noted from the connection's first byte on.
 *
 * It promises that a connection which is kept answers each request as it would have answered the first one, or that the
 * process does not go on. In doubt it says no: an answer that is not exactly the expected one, bytes that nobody asked
 * for, a server that is slow or gone, TLS, compression, an unknown protocol, a statement whose effect on the connection
 * is not known. It never waits without an end, and believes nothing that a peer says beyond its own buffers.
 *
 * Nothing here knows PHP. The order of calls:
 *
 *   connections_watch()    before the work opens anything
 *   connections_settle()   before the point: which connections are kept from here on
 *   connections_reset()    after a request, before its answer is complete: sends what puts the servers back
 *   connections_answered() at the point, after the rewind: whether they did
 *   connections_alive()    before a request is taken
 *   connections_close()    when the process leaves
 */
#ifndef HAYATE_REWIND_CONNECTIONS_H
#define HAYATE_REWIND_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* NULL, or what failed. */
const char *connections_watch(void);

/* What opens connections from now on: any number, which is told with each. */
void connections_opener(unsigned opener);

/*
 * Asks the servers what the connections are like, puts them back once, and keeps those that are then as they were.
 * Tells of each: NULL, or why it is not kept; then a request that uses it is in doubt (REWIND_CONNECTION). `gone`: its
 * server has closed it, or says nothing. Takes at most five seconds for each answer. Returns how many are kept.
 */
size_t connections_settle(void (*tell)(const char *peer, const char *kind, const char *why, unsigned opener,
                                       bool gone));

/* Without waiting. NULL, or how the request left one of that kind: the process must not serve another. */
const char *connections_reset(const char **kind);

/* Waits five seconds at most for each connection that the request before has used. NULL, or what was wrong with one of
 * that kind; `silent`: a server has said nothing in that time. */
const char *connections_answered(const char **kind, bool *silent);

/* How many were put back since the point, and what that took this process, waiting included, in ns. */
void connections_cost(uint64_t *resets, uint64_t *ns);

/* False: a connection was closed by its server, or something came that nobody asked for. */
bool connections_alive(void);

/* How many are kept. */
size_t connections_kept(void);

/* In the child of a fork: it finds /dev/null in place of each that is kept, so that it can say nothing on them. */
void connections_in_child(void);
/* In its parent: those that are not kept yet will not be, since the child has them too. */
void connections_forked(void);

/* Says goodbye on connections that are kept, as far as the protocol has a word for it. */
void connections_close(void);

/* None is kept after all: it is as if nothing had ever been watched. */
void connections_forget(void);

/* For interpose_*.c: what passes a descriptor. They change neither errno nor memory that is put back. */
bool connections_watching(void);
void connections_opened(int fd);
void connections_closed(int fd);
void connections_said(int fd, const void *bytes, size_t len);
void connections_heard(int fd, const void *bytes, size_t len);
/* Something was done to it that is not noted. */
void connections_lost(int fd, const char *why);
/* For process.c. */
bool connections_keeps(int fd);

#endif
