/*
 * PHP's output becomes the response.
 *
 * The head is written in place when PHP sends it, but the front hears of it only with the first flush, the first half
 * ring of body, or the end: a small answer costs one announcement, and the front then knows its length.
 */
#include "host.h"
#include "engine.h"
#include "stray.h"

#include "ext/standard/basic_functions.h"
#include "php_main.h"
#include "php_output.h"

size_t output_write(const char *from, size_t len)
{
	if (request.exchange.slot == NULL) {
		/* A worker script's boot has no client; what it prints belongs in the log. */
		char *text = estrndup(from, len);
		log_lines(text);
		efree(text);
		return len;
	}
	if (request.answered) {
		return len; /* after hayate_finish_request(): nobody is listening, and that is fine */
	}
	if (!hy_body_write(&request.exchange, from, len)) {
		php_handle_aborted_connection();
	}
	return len;
}

void output_flush(void *context)
{
	if (request.exchange.slot == NULL || request.answered) {
		return;
	}
	if (ENGINE_FLUSH_SENDS_HEAD) {
		sapi_send_headers();
	}
	hy_response_flush(&request.exchange);
	if (hy_aborted(&request.exchange)) {
		php_handle_aborted_connection();
	}
}

struct writer {
	char *at, *end;
	bool full;
};

static void put(struct writer *to, const void *bytes, size_t len)
{
	if (to->full || len > (size_t)(to->end - to->at)) {
		to->full = true;
		return;
	}
	memcpy(to->at, bytes, len);
	to->at += len;
}

/* "HTTP/1.1 404 Gone fishing" or "404 Gone fishing" → the phrase, which may be empty */
static const char *reason_in(const char *line)
{
	const char *space = strchr(line, ' ');
	while (space != NULL && *space == ' ') {
		space++;
	}
	return space == NULL ? "" : space;
}

/* The value of the first header of that name, NULL without one. */
static const char *header_value(sapi_headers_struct *headers, const char *name)
{
	size_t len = strlen(name);
	zend_llist_position at;
	for (sapi_header_struct *h = zend_llist_get_first_ex(&headers->headers, &at); h != NULL;
	     h = zend_llist_get_next_ex(&headers->headers, &at)) {
		if (h->header_len > len && h->header[len] == ':' && strncasecmp(h->header, name, len) == 0) {
			return h->header + len + 1 + strspn(h->header + len + 1, " \t");
		}
	}
	return NULL;
}

/* A "Status:" header names status and reason, as in CGI; it is not passed on. */
static bool is_status(const sapi_header_struct *h)
{
	return h->header_len > 7 && strncasecmp(h->header, "Status:", 7) == 0;
}

static void put_header(struct writer *to, const char *name, uint16_t name_len, const char *value, uint32_t value_len)
{
	put(to, &name_len, sizeof name_len);
	put(to, &value_len, sizeof value_len);
	put(to, name, name_len);
	put(to, value, value_len);
}

/* Server-Timing, for whoever develops: waiting for a worker, PHP up to here, the rewind before. In ms. */
static void put_timing(struct writer *to)
{
	const struct hy_slot *slot = request.exchange.slot;
	char value[160];
	uint64_t before = handle_rewind_ns();
	uint64_t php = hy_now() - slot->claimed_at - slot->blocked_ns;
	int len = snprintf(value, sizeof value, "queue;dur=%.3f, php;dur=%.3f",
	                   (double)(slot->claimed_at - slot->submitted_at) / 1e6, (double)php / 1e6);
	if (before != 0) {
		len += snprintf(value + len, sizeof value - (size_t)len, ", rewind;dur=%.3f;desc=\"after the request before\"",
		                (double)before / 1e6);
	}
	put_header(to, "Server-Timing", sizeof "Server-Timing" - 1, value, (uint32_t)len);
}

/* Bytes that it takes in the answer. */
static size_t header_size(const sapi_header_struct *h)
{
	size_t blanks = 0;
	const char *colon = memchr(h->header, ':', h->header_len);
	if (colon != NULL) {
		blanks = strspn(colon + 1, " \t");
	}
	return sizeof(uint16_t) + sizeof(uint32_t) + h->header_len - 1 - MIN(blanks, h->header_len - 1);
}

/* PHP compares each header that it adds with all before it: tens of thousands would take it many seconds. Once there
 * are more than an answer can hold, which is 500 then, no further one is added. */
int output_header(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers)
{
	const size_t refused = SIZE_MAX / 2;
	size_t most = hy_ring_response_head_size();
	if (op == SAPI_HEADER_DELETE || op == SAPI_HEADER_DELETE_ALL) {
		/* There may be room again. */
		request.header_bytes = MIN(request.header_bytes, most + 1);
		return SAPI_HEADER_ADD;
	}
	if ((op != SAPI_HEADER_ADD && op != SAPI_HEADER_REPLACE) || header == NULL || header->header_len == 0) {
		return SAPI_HEADER_ADD;
	}
	if (request.header_bytes > most && request.header_bytes < refused) {
		zend_llist_position at;
		request.header_bytes = 0;
		for (sapi_header_struct *h = zend_llist_get_first_ex(&headers->headers, &at); h != NULL;
		     h = zend_llist_get_next_ex(&headers->headers, &at)) {
			request.header_bytes += header_size(h);
		}
		if (request.header_bytes > most) {
			request.header_bytes = refused;
		}
	}
	if (request.header_bytes >= refused) {
		return 0;
	}
	request.header_bytes += header_size(header);
	return SAPI_HEADER_ADD;
}

/* All that the script has set; returns their number. */
static uint16_t put_headers(struct writer *to, sapi_headers_struct *headers)
{
	uint16_t count = 0;
	zend_llist_position at;
	for (sapi_header_struct *h = zend_llist_get_first_ex(&headers->headers, &at); h != NULL;
	     h = zend_llist_get_next_ex(&headers->headers, &at)) {
		const char *colon = memchr(h->header, ':', h->header_len);
		if (colon == NULL || colon == h->header || is_status(h)) {
			continue;
		}
		const char *value = colon + 1;
		const char *end = h->header + h->header_len;
		while (value < end && (*value == ' ' || *value == '\t')) {
			value++;
		}
		put_header(to, h->header, (uint16_t)MIN(colon - h->header, UINT16_MAX), value, (uint32_t)(end - value));
		count++;
	}
	return count;
}

bool output_inform(uint16_t status, sapi_headers_struct *headers)
{
	struct hy_response_head head = {.status = status};
	if (request.exchange.slot == NULL || request.answered || SG(headers_sent) || status < 102 || status > 199) {
		return false;
	}
	char *start = emalloc(HY_INFORM_BYTES);
	struct writer to = {start + sizeof head, start + HY_INFORM_BYTES, false};
	head.headers = put_headers(&to, headers);
	memcpy(start, &head, sizeof head);
	bool sent = !to.full && hy_response_inform(&request.exchange, start, (uint32_t)(to.at - start));
	efree(start);
	return sent;
}

int output_send_headers(sapi_headers_struct *headers)
{
	if (request.exchange.slot == NULL || request.answered || is_stray()) {
		return SAPI_HEADER_SENT_SUCCESSFULLY;
	}
	in_the_way_before_answer();
	struct hy_response_head head = {.status = (uint16_t)headers->http_response_code};
	const char *reason = "";
	if (head.status == 0) {
		head.status = 200;
	}
	/* http_response_code(200) leaves the line of an earlier status where it was. php-fpm looks at it with others only.
	 */
	bool has_line = headers->http_status_line != NULL && strncasecmp(headers->http_status_line, "HTTP/", 5) == 0;
	if (has_line && head.status != 200) {
		const char *status = reason_in(headers->http_status_line);
		int code = atoi(status);
		if (code >= 100 && code <= 999) {
			head.status = (uint16_t)code;
			reason = reason_in(status);
		}
	} else {
		const char *status = header_value(headers, "Status");
		int code = status == NULL ? 0 : atoi(status);
		if (code >= 100 && code <= 999) {
			head.status = (uint16_t)code;
			reason = reason_in(status);
		} else if (head.status == 200 && header_value(headers, "Location") != NULL) {
			head.status = 302; /* RFC 3875, 6.2.3: a redirection without a status */
		}
	}
	if (head.status == 200 && errors_failed()) {
		/* PHP says so only where it shows no errors. */
		head.status = 500;
		reason = "";
	}
	head.reason_len = (uint16_t)MIN(strlen(reason), 256);

	char *start = request.exchange.response_head;
	struct writer to = {start + sizeof head, start + hy_ring_response_head_size(), false};
	put(&to, reason, head.reason_len);
	head.headers = put_headers(&to, headers);
	if (options.development) {
		put_timing(&to);
		head.headers++;
	}
	if (to.full) {
		log_format(HY_LOG_ERROR "The response's headers are larger than %u bytes; answered 500 without them. "
		                        "Send fewer or shorter headers (cookies, usually).",
		           hy_ring_response_head_size());
		head = (struct hy_response_head){.status = 500};
		to.at = start + sizeof head;
	}
	memcpy(start, &head, sizeof head);
	compare_head(head.status, headers);
	hy_response_head(&request.exchange, (uint32_t)(to.at - start));
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

void output_finish(bool release)
{
	if (request.exchange.slot == NULL || is_stray()) {
		return;
	}
	if (!request.answered) {
		if (request.exchange.slot->response_head_len == 0) {
			/* PHP never sent a head: a fatal error before its output layer stood. */
			struct hy_response_head head = {
			    .status =
			        (uint16_t)(SG(sapi_headers).http_response_code >= 400 ? SG(sapi_headers).http_response_code : 500)};
			memcpy(request.exchange.response_head, &head, sizeof head);
			compare_head(head.status, NULL);
			hy_response_head(&request.exchange, sizeof head);
		}
		hy_response_complete(&request.exchange, !release);
		request.answered = true;
	}
	if (release) {
		hy_release(&request.exchange);
	}
}
