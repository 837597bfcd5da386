/* What connections_mysql.c, which follows what is said, and connections_mysql_reset.c, which puts back, share. */
#ifndef HAYATE_REWIND_CONNECTIONS_MYSQL_H
#define HAYATE_REWIND_CONNECTIONS_MYSQL_H

#include "connections_internal.h"

#define COM_QUIT 0x01
#define COM_INIT_DB 0x02
#define COM_QUERY 0x03
#define COM_STATISTICS 0x09
#define COM_PING 0x0e
#define COM_STMT_PREPARE 0x16
#define COM_STMT_EXECUTE 0x17
#define COM_STMT_SEND_LONG_DATA 0x18
#define COM_STMT_CLOSE 0x19
#define COM_STMT_RESET 0x1a
#define COM_STMT_FETCH 0x1c
#define COM_RESET_CONNECTION 0x1f

#define CLIENT_COMPRESS 0x20u
#define CLIENT_SSL 0x800u
#define CLIENT_DEPRECATE_EOF 0x1000000u
#define CLIENT_ZSTD 0x4000000u
#define CLIENT_QUERY_ATTRIBUTES 0x8000000u

#define WANTS_FILE 0xfb
#define ERROR 0xff
#define NO_BACKSLASH_ESCAPES 2 /* of the second byte of the status that an OK says */
#define NO_SUCH_ENCODING 1115  /* ER_UNKNOWN_CHARACTER_SET */

#define IN_TRANSACTION 1
#define MORE_RESULTS 8

static inline uint32_t mysql_length(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
}

/* Adds a command to those in `to`; false: there is no room for it. */
bool mysql_put_packet(uint8_t *to, size_t room, size_t *at, uint8_t command, const char *text, size_t len);
/* Has each reset repeat it. */
void mysql_say_again(struct connection *one, uint8_t command, const char *text, size_t len);
const char *mysql_left(const struct connection *one);

/* As struct protocol has them. */
void mysql_settle(struct connection *one);
void mysql_compare(struct connection *one);
size_t mysql_reset(struct connection *one, uint8_t *to, size_t room);
enum verdict mysql_judge_reset(struct connection *one);
void mysql_rested(struct connection *one);

#endif
