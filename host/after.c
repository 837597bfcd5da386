/*
 * What follows hayate_handle_request() in a worker script's loop, with rewind: a visitor does not wait for it, and what
 * it prints is nobody's. So the answer is finished when the handler returns, though the request goes on, with its
 * objects alive, until the next call.
 *
 * Where nothing follows (calls_again.c), as in `while (hayate_handle_request($handler)) {}`, the request ends at once,
 * in PHP's own order, and what destructors print at its end still belongs to the answer. And a handler that has
 * answered nothing at all leaves the answer to what follows: scripts that have to run in global scope run there.
 */
#include "host.h"

#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/head.h"
#include "php_output.h"

static size_t buffered(void)
{
	size_t bytes = 0;
	if (OG(active) != NULL) {
		php_output_handler **handlers = zend_stack_base(&OG(handlers));
		for (int i = 0; i < zend_stack_count(&OG(handlers)); i++) {
			bytes += handlers[i]->buffer.used;
		}
	}
	return bytes;
}

static bool has_status(void)
{
	return (SG(sapi_headers).http_response_code != 200 && SG(sapi_headers).http_response_code != 0) ||
	       SG(sapi_headers).http_status_line != NULL;
}

/* Whether PHP code has said anything: output, a status, a header of its own. Of a boot; of a request's handler see
 * below. */
bool after_has_answered(void)
{
	if (SG(headers_sent) || has_status()) {
		return true;
	}
	size_t headers = zend_llist_count(&SG(sapi_headers).headers);
	if (headers > (PG(expose_php) ? 1u : 0u)) {
		return true;
	}
	return buffered() > 0;
}

/* Of the answer's body, so far; early hints are none of it. */
static size_t body(void)
{
	return request.exchange.tail - request.exchange.informed + buffered();
}

/* What PHP has said by itself by the time the handler begins: a session's cookie, a warning of a body that is too
 * large. */
static struct {
	size_t header_bytes, body;
	bool sent;
} begun EACH_REQUEST;

void after_begins(void)
{
	begun.header_bytes = request.header_bytes;
	begun.body = body();
	begun.sent = SG(headers_sent);
}

static bool handler_has_answered(void)
{
	return begun.sent != SG(headers_sent) || begun.header_bytes != request.header_bytes || begun.body != body() ||
	       has_status();
}

static void close_session(void)
{
	if (zend_hash_str_exists(&module_registry, ZEND_STRL("session")) && PS(session_status) == php_session_active) {
		php_session_flush(1);
	}
}

void after_handler(const zend_execute_data *caller, void (*step)(const char *name, void (*run)(void)))
{
	if (request.answered || calls_again(caller) || !handler_has_answered()) {
		return;
	}
	step("shutdown functions", shutdown_run);
	step("shutdown functions", php_free_shutdown_functions);
	step("output", php_output_end_all);
	step("session", close_session);
	/* One that waits for its lock may be the same visitor's next request. */
	php_header();
	output_finish(false);
}
