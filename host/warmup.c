/*
 * Warm-up requests: what a first visitor would pay for is paid for before the snapshot. They run in the booting process
 * without a front, one after the other, with state kept; the application can tell them by $_SERVER['HAYATE_WARMUP'].
 * They are a help, never a condition: when one fails, hangs, or leaves open what workers must not share, the pool has
 * the application booted again without them.
 */
#include "host.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* What takes longer than this waits for something that will not come before there are visitors. */
#define SECONDS 30

static size_t next;

static void too_long(int signal)
{
	zygote_boot_again(HY_AGAIN_COLD, "the warm-up requests took more than 30 seconds");
}

static char *put(char *to, uint16_t field, const char *name, const char *value)
{
	struct hy_record record = {
	    .field = field, .name_len = (uint16_t)strlen(name), .value_len = (uint32_t)strlen(value)};
	memcpy(to, &record, sizeof record);
	to += sizeof record;
	memcpy(to, name, (size_t)record.name_len + 1);
	to += record.name_len + 1;
	memcpy(to, value, (size_t)record.value_len + 1);
	return to + record.value_len + 1;
}

bool warmup_next(struct hy_exchange *exchange)
{
	if (next >= options.warmup_count) {
		alarm(0);
		signal(SIGALRM, SIG_DFL);
		return false;
	}
	if (next == 0) {
		signal(SIGALRM, too_long);
		alarm(SECONDS);
	}
	const char *target = options.warmup[next++];
	char script[PATH_MAX], path[4096];
	snprintf(script, sizeof script, "%s/index.php", options.document_root == NULL ? "" : options.document_root);
	snprintf(path, sizeof path, "%s", target);
	char *query = strchr(path, '?');
	if (query != NULL) {
		*query++ = '\0';
	}
	char head[16384], *to = head;
	to = put(to, HY_FIELD_METHOD, "", "GET");
	to = put(to, HY_FIELD_TARGET, "", target);
	to = put(to, HY_FIELD_QUERY, "", query == NULL ? "" : query);
	to = put(to, HY_FIELD_PROTOCOL, "", "HTTP/1.1");
	to = put(to, HY_FIELD_DOCUMENT_ROOT, "", options.document_root == NULL ? "" : options.document_root);
	to = put(to, HY_FIELD_SCRIPT_FILENAME, "", script);
	to = put(to, HY_FIELD_SCRIPT_NAME, "", "/index.php");
	to = put(to, HY_FIELD_PATH_INFO, "", "");
	to = put(to, HY_FIELD_DOCUMENT_URI, "", "/index.php");
	to = put(to, HY_FIELD_REMOTE_ADDR, "", "127.0.0.1");
	to = put(to, HY_FIELD_REMOTE_PORT, "", "0");
	to = put(to, HY_FIELD_SERVER_ADDR, "", "127.0.0.1");
	to = put(to, HY_FIELD_SERVER_PORT, "", "80");
	to = put(to, HY_FIELD_SERVER_NAME, "", "localhost");
	to = put(to, HY_FIELD_SCHEME, "", "http");
	to = put(to, HY_FIELD_REQUEST_ID, "", "warm-up");
	to = put(to, HY_FIELD_HEADER, "host", "localhost");
	to = put(to, HY_FIELD_HEADER, "user-agent", "Hayate warm-up");
	to = put(to, HY_FIELD_HEADER, "accept", "*/*");
	return hy_exchange_local(exchange, head, (size_t)(to - head));
}
