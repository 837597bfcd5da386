/* See connections.h. What is said to each kind of server is in connections_mysql.c, _pgsql.c and _redis.c. */
#include "connections_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <time.h>

/* How long a server may take to put a connection back: it may have a large transaction to roll back. */
#define PATIENCE_NS 5000000000ull

/* Rewinds leave what it points to alone. */
static struct table {
	bool settled;                 /* which are kept, if any */
	int numbers[MAX_CONNECTIONS]; /* the descriptor of each and one; 0: there is none */
	struct {
		int number; /* so for those that there is no room for: as many as people are told of */
		unsigned opener;
	} beyond[MAX_CONNECTIONS];
	unsigned opener;
	uint64_t resets, reset_ns;
	struct connection all[MAX_CONNECTIONS];
} * table;

static const struct protocol *const protocols[] = {&protocol_mysql, &protocol_pgsql, &protocol_redis};

uint64_t connection_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

const char *connections_watch(void)
{
	table = rewind_keep(sizeof *table);
	return table == NULL ? "no memory for the rewinder" : NULL;
}

void connections_opener(unsigned opener)
{
	if (table != NULL) {
		table->opener = opener;
	}
}

bool connections_watching(void)
{
	return table != NULL;
}

static struct connection *find(int fd)
{
	for (size_t i = 0; table != NULL && fd >= 0 && i < MAX_CONNECTIONS; i++) {
		if (table->numbers[i] == fd + 1) {
			return &table->all[i];
		}
	}
	return NULL;
}

void connection_declined(struct connection *one, const char *why)
{
	if (one->why[0] == '\0') {
		snprintf(one->why, sizeof one->why, "%s", why);
		/* It may tell of what an application has said, and is to be one line of the log. */
		for (char *at = one->why; *at != '\0'; at++) {
			*at = (unsigned char)*at < ' ' ? ' ' : *at;
		}
	}
}

/* `one` is 0 for another one that there is no room for. */
static void replace_beyond(int one, int for_it)
{
	for (size_t i = 0; i < MAX_CONNECTIONS; i++) {
		if (table->beyond[i].number == one) {
			table->beyond[i].number = for_it;
			table->beyond[i].opener = table->opener;
			return;
		}
	}
}

void connections_opened(int fd)
{
	int type = 0;
	socklen_t len = sizeof type;
	if (table == NULL || table->settled ||
	    sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, (long)&type, (long)&len, 0) != 0 || type != SOCK_STREAM) {
		return;
	}
	struct connection *one = find(fd);
	for (size_t i = 0; one == NULL && i < MAX_CONNECTIONS; i++) {
		if (table->numbers[i] == 0) {
			table->numbers[i] = fd + 1;
			one = &table->all[i];
		}
	}
	if (one == NULL) {
		replace_beyond(0, fd + 1);
	} else {
		memset(one, 0, offsetof(struct connection, message));
		one->fd = fd;
		one->pid = (int)SYS1(SYS_getpid, 0);
		one->opener = table->opener;
	}
}

void connections_closed(int fd)
{
	struct connection *one = find(fd);
	if (one != NULL && one->kept) {
		one->broken = true;
	} else if (one != NULL) {
		table->numbers[one - table->all] = 0;
	} else if (table != NULL) {
		replace_beyond(fd + 1, 0);
	}
}

void connections_lost(int fd, const char *why)
{
	struct connection *one = find(fd);
	if (one != NULL) {
		connection_declined(one, why);
		one->broken = true;
	}
}

/* Hands on the client's messages one by one. */
static void collect(struct connection *one, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		if (one->skip > 0) {
			size_t part = len < one->skip ? len : one->skip;
			one->skip -= part;
			bytes += part;
			len -= part;
			continue;
		}
		size_t part = len < MOST_MESSAGE - one->have ? len : MOST_MESSAGE - one->have;
		memcpy(one->message + one->have, bytes, part);
		one->have += part;
		bytes += part;
		len -= part;
		for (;;) {
			size_t size = one->protocol->message_size(one, one->message, one->have);
			if (size == BAD_MESSAGE || (size == 0 && one->have == MOST_MESSAGE)) {
				connection_declined(one, "a message was sent on it that Hayate does not understand");
				one->broken = true;
				one->have = 0;
				return;
			}
			if (size > MOST_MESSAGE) {
				one->protocol->said(one, one->message, one->have, false);
				one->skip = size - one->have;
				one->have = 0;
			}
			if (size == 0 || size > one->have) {
				break;
			}
			one->protocol->said(one, one->message, size, true);
			one->have -= size;
			memmove(one->message, one->message + size, one->have);
		}
	}
}

static void pass_on(struct connection *one, bool client, const uint8_t *bytes, size_t len)
{
	if (one->broken) {
		return;
	}
	if (!client) {
		one->protocol->heard(one, bytes, len);
	} else if (!one->kept || one->protocol->follows) {
		collect(one, bytes, len);
	}
}

/* By the first bytes, of whoever speaks first. */
static void recognise(struct connection *one, bool client, const uint8_t *bytes, size_t len)
{
	one->first_of_client = one->first_len == 0 ? client : one->first_of_client;
	while (len > 0 && one->first_len < FIRST_BYTES && one->first_of_client == client) {
		one->first[one->first_len++] = *bytes++;
		len--;
	}
	if (one->first_len < FIRST_BYTES && one->first_of_client == client) {
		return;
	}
	for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++) {
		if (one->first_len == FIRST_BYTES && protocols[i]->is(one->first_of_client, one->first)) {
			one->protocol = protocols[i];
			pass_on(one, one->first_of_client, one->first, one->first_len);
			pass_on(one, client, bytes, len);
			return;
		}
	}
	connection_declined(one, "Hayate does not know what is spoken on it, or it is encrypted (TLS)");
}

static void passed(int fd, bool client, const void *bytes, size_t len)
{
	struct connection *one = find(fd);
	if (one == NULL || len == 0) {
		return;
	}
	one->touched = true;
	one->asked = client;
	one->broken |= one->resetting;
	if (one->protocol != NULL) {
		pass_on(one, client, bytes, len);
	} else if (one->why[0] == '\0') {
		recognise(one, client, bytes, len);
	}
}

void connections_said(int fd, const void *bytes, size_t len)
{
	passed(fd, true, bytes, len);
}

void connections_heard(int fd, const void *bytes, size_t len)
{
	passed(fd, false, bytes, len);
}

static bool send_all(int fd, const uint8_t *bytes, size_t len)
{
	return sys6(SYS_sendto, fd, (long)bytes, (long)len, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0) == (long)len;
}

/* Until something comes, the other end is closed, or that time. False: it is over. */
static bool wait_for(int fd, uint64_t until)
{
	uint64_t time = connection_now();
	struct pollfd poll = {.fd = fd, .events = POLLIN};
	if (time >= until) {
		return false;
	}
	struct timespec rest = {(time_t)((until - time) / 1000000000u), (long)((until - time) % 1000000000u)};
	sys6(SYS_ppoll, (long)&poll, 1, (long)&rest, 0, 8, 0);
	return true;
}

/* Reads until the judge has seen enough. False: it was not what was expected, or did not come. */
static bool receive(struct connection *one, enum verdict (*judge)(struct connection *one), uint64_t until)
{
	one->answer_len = 0;
	for (;;) {
		long n = sys6(SYS_recvfrom, one->fd, (long)(one->answer + one->answer_len),
		              (long)(sizeof one->answer - one->answer_len), MSG_DONTWAIT, 0, 0);
		if (n == -EINTR) {
			continue;
		}
		if (n == -EAGAIN) {
			if (!wait_for(one->fd, until)) {
				one->silent = one->gone = true;
				return false;
			}
			continue;
		}
		if (n <= 0) {
			one->gone = true;
			return false;
		}
		one->answer_len += (size_t)n;
		enum verdict verdict = judge(one);
		if (verdict != MORE || one->answer_len == sizeof one->answer) {
			return verdict == GOOD;
		}
	}
}

bool connection_ask(struct connection *one, const uint8_t *question, size_t len,
                    enum verdict (*judge)(struct connection *one))
{
	bool good = send_all(one->fd, question, len) && receive(one, judge, connection_now() + PATIENCE_NS);
	one->disturbed |= !good;
	return good;
}

void connection_append(struct connection *one, const void *bytes, size_t len)
{
	if (len > sizeof one->again - one->again_len) {
		connection_declined(one, "more was said on it than Hayate repeats after each request");
		return;
	}
	memcpy(one->again + one->again_len, bytes, len);
	one->again_len += len;
}

bool connection_random(uint8_t *to, size_t len)
{
	return SYS3(SYS_getrandom, to, len, 0) == (long)len;
}

/* Bytes that can be read; 0: its server has closed it; or why none can be. */
static long peek(const struct connection *one)
{
	char byte;
	return sys6(SYS_recvfrom, one->fd, (long)&byte, 1, MSG_PEEK | MSG_DONTWAIT, 0, 0);
}

static bool unread(const struct connection *one)
{
	return peek(one) != -EAGAIN;
}

/* Sends what puts it back. False when it cannot be in a state that this would lead back from. */
static bool put_back(struct connection *one)
{
	uint8_t text[MOST_AGAIN + MOST_QUESTION + 1024];
	if (one->broken || one->protocol->left(one) != NULL) {
		return false;
	}
	one->disturbed = true;
	one->changed = false;
	size_t len = one->protocol->reset(one, text, sizeof text);
	one->resetting = len > 0 && send_all(one->fd, text, len);
	return one->resetting;
}

/* Whether it was put back. */
static bool was_put_back(struct connection *one)
{
	bool good = receive(one, one->protocol->judge_reset, connection_now() + PATIENCE_NS);
	one->resetting = one->touched = one->asked = false;
	if (good) {
		one->protocol->rested(one);
	}
	return good;
}

/* Where it leads, for people. */
static void name_peer(int fd, char *to, size_t size)
{
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} peer;
	memset(&peer, 0, sizeof peer);
	socklen_t len = sizeof peer;
	if (SYS3(SYS_getpeername, fd, &peer, &len) != 0) {
		snprintf(to, size, "descriptor %d", fd);
	} else if (peer.any.sa_family == AF_UNIX) {
		snprintf(to, size, "%.*s", (int)sizeof peer.local.sun_path, peer.local.sun_path);
	} else if (peer.any.sa_family == AF_INET) {
		uint32_t at = ntohl(peer.v4.sin_addr.s_addr);
		snprintf(to, size, "%u.%u.%u.%u:%u", at >> 24, at >> 16 & 255, at >> 8 & 255, at & 255,
		         ntohs(peer.v4.sin_port));
	} else {
		snprintf(to, size, "port %u", ntohs(peer.v6.sin6_port));
	}
}

/* How long a server may take that leaves a connection while it is looked at. */
#define LEAVES_NS 100000000ull

#define QUIET_S 30
#define BETWEEN_S 10
#define UNANSWERED 3

/* 0: there is none. */
static int tcp_option(int fd, int option)
{
	int value = 0;
	socklen_t len = sizeof value;
	return sys6(SYS_getsockopt, fd, IPPROTO_TCP, option, (long)&value, (long)&len, 0) == 0 ? value : 0;
}

static void set_option(int fd, int level, int option, int value)
{
	sys6(SYS_setsockopt, fd, level, option, (long)&value, sizeof value, 0);
}

/*
 * What forwards TCP (NAT, load balancers) forgets a connection that is quiet for some minutes, and then says nothing;
 * a request would wait for its answer until its own end. So an idle one is asked by the kernel, which keeps it known,
 * and finds out within a minute where it is not. Clients' libraries switch that on with the system's times, which are
 * hours; who has set other ones has them.
 */
static void keep_alive(int fd)
{
	long plain = sys6(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0, 0);
	int idle = tcp_option(fd, TCP_KEEPIDLE);
	if (plain < 0) {
		return;
	}
	if (idle > QUIET_S && idle == tcp_option((int)plain, TCP_KEEPIDLE)) {
		set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, QUIET_S);
		set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, BETWEEN_S);
		set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, UNANSWERED);
		set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	}
	SYS1(SYS_close, plain);
}

/* Whether its server leaves it. Some say so before: what they say is read, which nobody else would. */
static bool leaves(struct connection *one)
{
	const uint64_t until = connection_now() + LEAVES_NS;
	do {
		long n = sys6(SYS_recvfrom, one->fd, (long)one->answer, sizeof one->answer, MSG_DONTWAIT, 0, 0);
		if (n == 0 || (n < 0 && n != -EINTR && n != -EAGAIN)) {
			return true;
		}
		if (n == -EAGAIN && !wait_for(one->fd, until)) {
			return false;
		}
	} while (connection_now() < until);
	return false;
}

static void settle(struct connection *one)
{
	if (one->why[0] != '\0') {
		return;
	}
	if (one->protocol == NULL) {
		connection_declined(one, "nothing was said on it, so that its protocol is not known");
	} else if (one->pid != (int)SYS1(SYS_getpid, 0)) {
		connection_declined(one, "another process opened it");
	} else if (one->have > 0 || one->skip > 0 || unread(one) || one->broken) {
		connection_declined(one, "it is in the middle of an exchange");
	} else {
		one->recorded = true;
		one->protocol->settle(one);
		if (one->why[0] == '\0' && !(put_back(one) && was_put_back(one))) {
			connection_declined(one, one->changed ? "after its server has put it back it is not as it was"
			                                      : "its server did not put it back as it was told to");
		}
		if (one->why[0] == '\0') {
			one->protocol->compare(one);
		}
	}
	/* What the boot has opened a request may use nevertheless. */
	if (one->why[0] != '\0' && one->opener > 0 && !one->gone) {
		one->gone = leaves(one);
	}
}

size_t connections_settle(void (*tell)(const char *peer, const char *kind, const char *why, unsigned opener, bool gone))
{
	size_t kept = 0;
	for (size_t i = 0; table != NULL && i < MAX_CONNECTIONS; i++) {
		struct connection *one = &table->all[i];
		if (table->numbers[i] == 0) {
			continue;
		}
		char peer[128];
		name_peer(one->fd, peer, sizeof peer);
		settle(one);
		one->kept = one->why[0] == '\0';
		if (one->kept) {
			/* Programs that requests start must not have it: what they say on it is not seen, and what they keep they
			 * hear. */
			SYS3(SYS_fcntl, one->fd, F_SETFD, FD_CLOEXEC);
			keep_alive(one->fd);
		} else if (one->disturbed) {
			/* Answers that nobody has read would be taken for those to the next questions, and settings are lost. */
			SYS2(SYS_shutdown, one->fd, SHUT_RDWR);
		}
		one->touched = false;
		kept += one->kept;
		table->numbers[i] = one->kept ? table->numbers[i] : 0;
		tell(peer, one->protocol == NULL ? "unknown" : one->protocol->name, one->kept ? NULL : one->why, one->opener,
		     one->gone);
	}
	for (size_t i = 0; table != NULL && i < MAX_CONNECTIONS; i++) {
		if (table->beyond[i].number != 0) {
			char peer[128];
			name_peer(table->beyond[i].number - 1, peer, sizeof peer);
			tell(peer, "unknown", "Hayate keeps 16 connections of a worker at most, and these were open before it",
			     table->beyond[i].opener, false);
		}
	}
	if (kept == 0) {
		table = NULL;
	} else {
		table->settled = true;
	}
	return kept;
}

/* A request may do what it likes: then the process does not go on. */
bool connections_keeps(int fd)
{
	const struct connection *one = find(fd);
	return one != NULL && one->kept;
}

size_t connections_kept(void)
{
	size_t kept = 0;
	for (size_t i = 0; table != NULL && table->settled && i < MAX_CONNECTIONS; i++) {
		kept += table->numbers[i] != 0;
	}
	return kept;
}

static void silence(int fd)
{
	long nowhere = sys6(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDWR | O_CLOEXEC, 0, 0, 0);
	if (nowhere < 0 || SYS3(SYS_dup3, nowhere, fd, O_CLOEXEC) < 0) {
		SYS1(SYS_close, fd);
	}
	if (nowhere >= 0) {
		SYS1(SYS_close, nowhere);
	}
}

void connections_in_child(void)
{
	const struct control *c = rewind_control;
	for (size_t i = 0; table != NULL && table->settled && i < MAX_CONNECTIONS; i++) {
		if (table->numbers[i] == 0) {
			continue;
		}
		int fd = table->all[i].fd;
		const struct descriptor *d = (size_t)fd < c->fd_count ? &c->fds[fd] : NULL;
		/* The number of one that was closed may be another file's. */
		if (d == NULL || !d->lost) {
			silence(fd);
		}
		if (d != NULL && d->copy != 0) {
			silence(d->copy);
		}
	}
}

void connections_forked(void)
{
	for (size_t i = 0; table != NULL && !table->settled && i < MAX_CONNECTIONS; i++) {
		if (table->numbers[i] != 0) {
			connection_declined(&table->all[i], "a process was forked while it was open, which has it as well");
		}
	}
}

/* What speaks against going on with it, for people. */
static const char *what_is_wrong(const struct connection *one)
{
	const char *left = one->broken ? NULL : one->protocol->left(one);
	return one->why[0] != '\0' ? one->why
	       : left != NULL      ? left
	                           : "its end here or its server's was closed, or takes nothing";
}

/*
 * The request has asked something and has not read the answer, and the worker will leave. As a client that closes its
 * connection at the request's end does (pg_close() reads what is to come), it sees to it that what was asked is done
 * before the answer of the request is complete: the server finds the end of the questions behind it, and closes.
 */
static void see_it_done(struct connection *one)
{
	const uint64_t until = connection_now() + PATIENCE_NS;
	const struct protocol *protocol = one->protocol;
	/* A server that looks whether its client is there (client_connection_check_interval of PostgreSQL) takes half an
	 * end for a client that has left. So it is told goodbye, unless a message is half sent. */
	if (one->have > 0 || one->skip > 0 || protocol->goodbye_len == 0 ||
	    !send_all(one->fd, protocol->goodbye, protocol->goodbye_len)) {
		SYS2(SYS_shutdown, one->fd, SHUT_WR);
	}
	for (;;) {
		long n = sys6(SYS_recvfrom, one->fd, (long)one->answer, sizeof one->answer, MSG_DONTWAIT, 0, 0);
		if (n == 0 || (n < 0 && n != -EINTR && n != -EAGAIN) || (n == -EAGAIN && !wait_for(one->fd, until)) ||
		    connection_now() >= until) {
			break;
		}
	}
	one->broken = true;
}

const char *connections_reset(const char **kind)
{
	if (table == NULL || !table->settled) {
		return NULL;
	}
	const char *wrong = NULL;
	uint64_t started = connection_now();
	for (size_t i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *one = &table->all[i];
		if (table->numbers[i] != 0 && (one->touched || one->broken)) {
			if (!put_back(one)) {
				*kind = one->protocol->name;
				wrong = what_is_wrong(one);
				if (!one->broken && one->protocol->left(one) != NULL) {
					see_it_done(one);
				}
			}
			table->resets++;
		}
	}
	table->reset_ns += connection_now() - started;
	return wrong;
}

const char *connections_answered(const char **kind, bool *silent)
{
	const char *wrong = NULL;
	*silent = false;
	if (table == NULL || !table->settled) {
		return NULL;
	}
	for (size_t i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *one = &table->all[i];
		if (table->numbers[i] != 0 && one->resetting) {
			uint64_t started = connection_now();
			if (!was_put_back(one)) {
				one->broken = true;
				*silent |= one->silent;
				*kind = one->protocol->name;
				wrong = one->changed ? "its server's settings have changed, or a stored function has changed its role"
				                     : "it was not put back within its time or not as expected";
			}
			table->reset_ns += connection_now() - started;
		}
	}
	return wrong;
}

void connections_cost(uint64_t *resets, uint64_t *ns)
{
	*resets = table == NULL ? 0 : table->resets;
	*ns = table == NULL ? 0 : table->reset_ns;
}

bool connections_alive(void)
{
	for (size_t i = 0; table != NULL && table->settled && i < MAX_CONNECTIONS; i++) {
		struct connection *one = &table->all[i];
		if (table->numbers[i] != 0 && unread(one)) {
			one->broken = true;
			return false;
		}
	}
	return true;
}

void connections_forget(void)
{
	table = NULL;
}

void connections_close(void)
{
	for (size_t i = 0; table != NULL && table->settled && i < MAX_CONNECTIONS; i++) {
		const struct connection *one = &table->all[i];
		if (table->numbers[i] != 0 && !one->broken && !one->resetting && !one->touched) {
			(void)send_all(one->fd, one->protocol->goodbye, one->protocol->goodbye_len);
		}
	}
}
