/*
 * A request that the host makes by itself, as hayate describes it on the command line: target, host, scheme, port, the
 * script's name, what follows it in the path, whether it is another visitor's, and the script, with unit separators
 * between. What is left out is made up for the host's document root, so that a person can type a path alone.
 */
#include "host.h"

#include <limits.h>
#include <string.h>

void visit_parse(const char *text, struct visit *visit)
{
	/* The arguments stay as they are, as ps shows them. */
	char *parts[8] = {strdup(text)};
	for (int i = 1; i < 8 && (parts[i] = strchr(parts[i - 1], HY_LOG_UNIT)) != NULL; i++) {
		*parts[i]++ = '\0';
	}
	*visit = (struct visit){
	    .target = parts[0],
	    .host = parts[1] == NULL ? "localhost" : parts[1],
	    .scheme = parts[2] == NULL ? "http" : parts[2],
	    .port = parts[3] == NULL ? "80" : parts[3],
	    .script_name = parts[4] == NULL ? "/index.php" : parts[4],
	    .path_info = parts[5] == NULL ? "" : parts[5],
	    .another_visitor = parts[6] != NULL && *parts[6] != '\0',
	    .script = parts[7],
	};
}

struct head {
	char bytes[16384];
	size_t len;
	bool full;
};

static void put(struct head *head, uint16_t field, const char *name, const char *value)
{
	struct hy_record record = {
	    .field = field, .name_len = (uint16_t)strlen(name), .value_len = (uint32_t)strlen(value)};
	size_t len = sizeof record + (size_t)record.name_len + 1 + (size_t)record.value_len + 1;
	if (head->full || len > sizeof head->bytes - head->len) {
		head->full = true;
		return;
	}
	char *to = head->bytes + head->len;
	memcpy(to, &record, sizeof record);
	memcpy(to + sizeof record, name, (size_t)record.name_len + 1);
	memcpy(to + sizeof record + record.name_len + 1, value, (size_t)record.value_len + 1);
	head->len += len;
}

bool visit_begin(const struct visit *visit, const char *who, struct hy_exchange *exchange)
{
	static struct head head;
	char script[PATH_MAX], name[512];
	const char *root = options.document_root == NULL ? "" : options.document_root;
	const char *query = strchr(visit->target, '?');
	snprintf(script, sizeof script, "%s/index.php", root);
	/* As the front: without the port, if there is one (an address of IPv6 keeps its brackets). */
	const char *port = strrchr(visit->host, ':');
	bool has_port = port != NULL && strchr(port, ']') == NULL;
	snprintf(name, sizeof name, "%.*s", has_port ? (int)(port - visit->host) : (int)strlen(visit->host), visit->host);
	head.len = 0;
	head.full = false;
	put(&head, HY_FIELD_METHOD, "", "GET");
	put(&head, HY_FIELD_TARGET, "", visit->target);
	put(&head, HY_FIELD_QUERY, "", query == NULL ? "" : query + 1);
	put(&head, HY_FIELD_PROTOCOL, "", "HTTP/1.1");
	put(&head, HY_FIELD_DOCUMENT_ROOT, "", root);
	put(&head, HY_FIELD_SCRIPT_FILENAME, "", visit->script == NULL ? script : visit->script);
	put(&head, HY_FIELD_SCRIPT_NAME, "", visit->script_name);
	put(&head, HY_FIELD_PATH_INFO, "", visit->path_info);
	put(&head, HY_FIELD_DOCUMENT_URI, "", visit->script_name);
	put(&head, HY_FIELD_REMOTE_ADDR, "", "127.0.0.1");
	put(&head, HY_FIELD_REMOTE_PORT, "", "0");
	put(&head, HY_FIELD_SERVER_ADDR, "", "127.0.0.1");
	put(&head, HY_FIELD_SERVER_PORT, "", visit->port);
	put(&head, HY_FIELD_SERVER_NAME, "", name);
	put(&head, HY_FIELD_SCHEME, "", visit->scheme);
	put(&head, HY_FIELD_REQUEST_ID, "", who);
	put(&head, HY_FIELD_HEADER, "host", visit->host);
	put(&head, HY_FIELD_HEADER, "user-agent", "Hayate warm-up");
	put(&head, HY_FIELD_HEADER, "accept", "text/html,*/*");
	if (visit->another_visitor) {
		put(&head, HY_FIELD_HEADER, "accept-language", "fr-FR,fr;q=0.9,de;q=0.5");
		put(&head, HY_FIELD_HEADER, "cookie", "hayate-comparison=kappa");
	}
	return !head.full && hy_exchange_local(exchange, head.bytes, head.len);
}
