/*
 * The request head, as records in shared memory, becomes SG(request_info), $_SERVER and getenv().
 *
 * Values are used where they lie: the slot belongs to this worker until it is released, and every value ends in a NUL,
 * or did when the request began: a head that is none ends this worker.
 * Which variables there are follows nginx's fastcgi_params and what php-fpm adds, since that is what applications know.
 */
#include "host.h"
#include "records.h"

#include "php_main.h"
#include "php_variables.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

struct request request EACH_REQUEST;

/* With its length: frameworks ask for many variables of the environment in each request. */
struct name {
	const char *at;
	size_t len;
};
#define NAME(text)                                                                                                     \
	{                                                                                                                  \
		text, sizeof(text) - 1                                                                                         \
	}

/* $_SERVER's name for each field; NULL: not passed on under a fixed name. */
static const struct name field_names[HY_FIELD_COUNT] = {
    [HY_FIELD_METHOD] = NAME("REQUEST_METHOD"),
    [HY_FIELD_TARGET] = NAME("REQUEST_URI"),
    [HY_FIELD_QUERY] = NAME("QUERY_STRING"),
    [HY_FIELD_PROTOCOL] = NAME("SERVER_PROTOCOL"),
    [HY_FIELD_DOCUMENT_ROOT] = NAME("DOCUMENT_ROOT"),
    [HY_FIELD_SCRIPT_FILENAME] = NAME("SCRIPT_FILENAME"),
    [HY_FIELD_SCRIPT_NAME] = NAME("SCRIPT_NAME"),
    [HY_FIELD_PATH_INFO] = NAME("PATH_INFO"),
    [HY_FIELD_DOCUMENT_URI] = NAME("DOCUMENT_URI"),
    [HY_FIELD_REMOTE_ADDR] = NAME("REMOTE_ADDR"),
    [HY_FIELD_REMOTE_PORT] = NAME("REMOTE_PORT"),
    [HY_FIELD_SERVER_ADDR] = NAME("SERVER_ADDR"),
    [HY_FIELD_SERVER_PORT] = NAME("SERVER_PORT"),
    [HY_FIELD_SERVER_NAME] = NAME("SERVER_NAME"),
    [HY_FIELD_SCHEME] = NAME("REQUEST_SCHEME"),
    [HY_FIELD_CONTENT_TYPE] = NAME("CONTENT_TYPE"),
    [HY_FIELD_CONTENT_LENGTH] = NAME("CONTENT_LENGTH"),
};
/* The same for every request. */
static const struct {
	struct name name;
	const char *value;
} constants[] = {
    {NAME("GATEWAY_INTERFACE"), "CGI/1.1"},
    {NAME("SERVER_SOFTWARE"), HAYATE_SAPI_NAME},
    {NAME("REDIRECT_STATUS"), "200"},
    {NAME("FCGI_ROLE"), "RESPONDER"},
};
#define CONSTANTS (sizeof constants / sizeof constants[0])

static void (*import_process_environment)(zval *to);
static void import_environment(zval *to);

void request_startup(void)
{
	memset(&request, 0, sizeof request);
	/* As php-fpm: getenv() and $_ENV know the request's variables, too. */
	import_process_environment = php_import_environment_variables;
	php_import_environment_variables = import_environment;
}

static struct cursor records(void)
{
	return (struct cursor){request.exchange.request_head,
	                       request.exchange.request_head + request.exchange.request_head_len};
}

static bool is(const struct record *record, const char *name, size_t len)
{
	return record->name_len == len && memcmp(record->name, name, len) == 0;
}

static bool is_name(const struct name *candidate, const char *name, size_t len)
{
	return candidate->len == len && len > 0 && memcmp(candidate->at, name, len) == 0;
}

void request_begin(void)
{
	struct cursor cursor = records();
	struct record record;
	memset(request.field, 0, sizeof request.field);
	request.answered = false;
	request.handler = HANDLER_WAITS;
	request.header_bytes = 0;
	request.authorization = NULL;
	request.cookie = NULL;
	while (next_record(&cursor, &record)) {
		if (record.field == HY_FIELD_HEADER) {
			if (is(&record, "cookie", 6)) {
				if (request.cookie == NULL) {
					request.cookie = record.value;
				} else {
					char *joined;
					if (asprintf(&joined, "%s; %s", request.cookie, record.value) > 0) {
						free(request.joined_cookie);
						request.cookie = request.joined_cookie = joined;
					}
				}
			} else if (is(&record, "authorization", 13)) {
				request.authorization = record.value;
			}
		} else if (record.field < HY_FIELD_COUNT && record.field != HY_FIELD_VARIABLE) {
			request.field[record.field].at = record.value;
			request.field[record.field].len = record.value_len;
		}
	}
	if (cursor.at != cursor.end) {
		hy_memory_is_broken();
	}
	for (int i = 0; i < HY_FIELD_COUNT; i++) {
		if (request.field[i].at == NULL) {
			request.field[i].at = "";
		}
	}
	SG(server_context) = &request;
	SG(request_info).request_method = request.field[HY_FIELD_METHOD].at;
	SG(request_info).query_string = (char *)request.field[HY_FIELD_QUERY].at;
	SG(request_info).request_uri = (char *)request.field[HY_FIELD_TARGET].at;
	SG(request_info).path_translated = (char *)request.field[HY_FIELD_SCRIPT_FILENAME].at;
	const char *type = request.field[HY_FIELD_CONTENT_TYPE].at;
	SG(request_info).content_type = type;
	/* Unknown for a chunked body. PHP reads on until the body ends; the limits compare what was read. */
	SG(request_info).content_length = strtoll(request.field[HY_FIELD_CONTENT_LENGTH].at, NULL, 10);
	SG(request_info).proto_num = strcmp(request.field[HY_FIELD_PROTOCOL].at, "HTTP/1.0") == 0 ? 1000 : 1001;
	SG(request_info).no_headers = 0;
	SG(sapi_headers).http_response_code = 200;
	if (request.authorization != NULL) {
		php_handle_auth_data(request.authorization);
	}
	errors_of_request();
}

void request_end(void)
{
	free(request.joined_cookie);
	request.joined_cookie = NULL;
	request.cookie = request.authorization = NULL;
	SG(server_context) = NULL;
	SG(request_info).request_method = NULL;
	SG(request_info).query_string = NULL;
	SG(request_info).request_uri = NULL;
	SG(request_info).path_translated = NULL;
	SG(request_info).content_type = NULL;
	SG(request_info).content_length = 0;
}

static char cgi_letter(char c)
{
	return c == '-' ? '_' : (char)toupper((unsigned char)c);
}

static size_t cgi_length(const struct record *record)
{
	return record->name_len + 5;
}

/* "accept-language" → "HTTP_ACCEPT_LANGUAGE" */
static void cgi_name(const struct record *record, char *to)
{
	memcpy(to, "HTTP_", 5);
	for (uint32_t i = 0; i < record->name_len; i++) {
		to[5 + i] = cgi_letter(record->name[i]);
	}
	to[cgi_length(record)] = '\0';
}

static bool has_cgi_name(const struct record *record, const char *name, size_t len)
{
	if (cgi_length(record) != len || memcmp(name, "HTTP_", 5) != 0) {
		return false;
	}
	for (uint32_t i = 0; i < record->name_len; i++) {
		if (name[5 + i] != cgi_letter(record->name[i])) {
			return false;
		}
	}
	return true;
}

/* nginx's $remote_user: the name given by basic authentication, checked or not; "" without one. */
static const char *remote_user(void)
{
	return SG(request_info).auth_user != NULL ? SG(request_info).auth_user : "";
}

static void add(HashTable *to, const char *name, size_t name_len, const char *value, size_t value_len)
{
	zval v;
	ZVAL_STRINGL_FAST(&v, value, value_len);
	/* As php-fpm: of several headers with one name, the last one counts (nginx would have joined some of them). */
	zend_hash_str_update(to, name, name_len, &v);
}

static bool environment_has_headers(void)
{
	for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
		if (strncmp(*variable, "HTTP_", 5) == 0) {
			return true;
		}
	}
	return false;
}

static void add_header(HashTable *to, const struct record *record, HashTable *taken)
{
	char usual[512], *name = usual;
	size_t len = cgi_length(record);
	if (len >= sizeof usual) {
		name = emalloc(len + 1);
	}
	cgi_name(record, name);
	const zval *before = zend_hash_str_find(to, name, len);
	bool first = taken != NULL && zend_hash_str_add_empty_element(taken, name, len) != NULL;
	if (before == NULL || first) {
		add(to, name, len, record->value, record->value_len);
	} else {
		/* RFC 9110, 5.3: repeated fields are one list; cookies are joined with "; " (RFC 6265, 5.4). So below. */
		zend_string *joined = is(record, "cookie", 6) ? strpprintf(0, "%s; %s", Z_STRVAL_P(before), record->value)
		                                              : strpprintf(0, "%s, %s", Z_STRVAL_P(before), record->value);
		zval v;
		ZVAL_STR(&v, joined);
		zend_hash_str_update(to, name, len, &v);
	}
	if (name != usual) {
		efree(name);
	}
}

/* The request's variables as php-fpm gets them from nginx. */
static void add_variables(HashTable *to)
{
	struct cursor cursor = records();
	struct record record;
	/* Headers that have taken the place of what the environment has by that name. */
	HashTable taken;
	bool has_any = environment_has_headers();
	zend_hash_init(&taken, 8, NULL, NULL, false);
	while (next_record(&cursor, &record)) {
		if (record.field == HY_FIELD_HEADER) {
			add_header(to, &record, has_any ? &taken : NULL);
		} else if (record.field == HY_FIELD_VARIABLE) {
			add(to, record.name, record.name_len, record.value, record.value_len);
		}
	}
	zend_hash_destroy(&taken);
	for (int i = 0; i < HY_FIELD_COUNT; i++) {
		if (field_names[i].at != NULL) {
			add(to, field_names[i].at, field_names[i].len, request.field[i].at, request.field[i].len);
		}
	}
	if (strcmp(request.field[HY_FIELD_SCHEME].at, "https") == 0) {
		add(to, "HTTPS", 5, "on", 2);
	}
	for (size_t i = 0; i < CONSTANTS; i++) {
		add(to, constants[i].name.at, constants[i].name.len, constants[i].value, strlen(constants[i].value));
	}
	const char *user = remote_user();
	add(to, "REMOTE_USER", 11, user, strlen(user));
	if (hy_is_local(&request.exchange)) {
		/* What is compared is as a visitor's request, but for this. */
		const char *name = compare_answers() && !compare_learns() ? "HAYATE_COMPARISON" : "HAYATE_WARMUP";
		add(to, name, strlen(name), "1", 1);
	}
}

/* SCRIPT_NAME and PATH_INFO together, as php-fpm with cgi.fix_pathinfo. */
static void add_self(HashTable *to)
{
	zend_string *self =
	    strpprintf(0, "%s%s", request.field[HY_FIELD_SCRIPT_NAME].at, request.field[HY_FIELD_PATH_INFO].at);
	zval v;
	ZVAL_STR(&v, self);
	zend_hash_str_update(to, "PHP_SELF", 8, &v);
}

/*
 * php.ini's filter.default: whether the filter extension changes what comes from the client. Then php-fpm has it add
 * each variable, to $_SERVER as it makes it and as it came to a table that filter_input() reads. Without one that would
 * double the price of $_SERVER; the table is filled when somebody asks for it (request_fill_filter_table()).
 */
static const zend_ini_entry *default_filter;

void request_after_startup(void)
{
	default_filter = zend_hash_str_find_ptr(EG(ini_directives), ZEND_STRL("filter.default"));
}

static bool is_filtered(void)
{
	return default_filter != NULL && default_filter->value != NULL &&
	       !zend_string_equals_literal(default_filter->value, "unsafe_raw");
}

/* By the filter extension, which adds them to `table`, one of its own, and to PHP's array of the same kind. */
static void filter_variables(int table, void (*add_to)(HashTable *))
{
	HashTable raw;
	zend_string *name;
	zval *value;
	zend_hash_init(&raw, 64, NULL, ZVAL_PTR_DTOR, false);
	add_to(&raw);
	ZEND_HASH_FOREACH_STR_KEY_VAL(&raw, name, value)
	{
		char *text = Z_STRVAL_P(value);
		size_t len;
		sapi_module.input_filter(table, ZSTR_VAL(name), &text, Z_STRLEN_P(value), &len);
	}
	ZEND_HASH_FOREACH_END();
	zend_hash_destroy(&raw);
}

static bool is_global(const HashTable *array, int which)
{
	const zval *global = &PG(http_globals)[which];
	return Z_TYPE_P(global) == IS_ARRAY && Z_ARRVAL_P(global) == array;
}

/* getenv() lists them as they came. */
static void import_variables(HashTable *to, void (*add_to)(HashTable *))
{
	bool to_server = is_global(to, TRACK_VARS_SERVER);
	if (is_filtered() && (to_server || is_global(to, TRACK_VARS_ENV))) {
		filter_variables(to_server ? PARSE_SERVER : PARSE_ENV, add_to);
	} else {
		add_to(to);
	}
}

/* As php-fpm: of $_SERVER and $_ENV the second is a copy of the first. */
static bool copy_other(zval *array)
{
	bool to_server = is_global(Z_ARRVAL_P(array), TRACK_VARS_SERVER);
	if (!to_server && !is_global(Z_ARRVAL_P(array), TRACK_VARS_ENV)) {
		return false;
	}
	const zval *other = &PG(http_globals)[to_server ? TRACK_VARS_ENV : TRACK_VARS_SERVER];
	if (Z_TYPE_P(other) != IS_ARRAY || zend_hash_num_elements(Z_ARRVAL_P(other)) == 0) {
		return false;
	}
	zend_array_destroy(Z_ARR_P(array));
	ZVAL_ARR(array, zend_array_dup(Z_ARRVAL_P(other)));
	return true;
}

/* The process' environment, which nobody filters, and the request's variables. */
static void import_environment(zval *server)
{
	if (request.exchange.slot == NULL) {
		import_process_environment(server);
	} else if (!copy_other(server)) {
		import_process_environment(server);
		import_variables(Z_ARRVAL_P(server), add_variables);
	}
}

void request_register_server(zval *server)
{
	import_environment(server);
	HashTable *to = Z_ARRVAL_P(server);
	if (request.exchange.slot == NULL) {
		/* A worker script boots: it is nobody's request, but its own name is known. */
		if (SG(request_info).path_translated != NULL) {
			const char *script = SG(request_info).path_translated;
			add(to, "SCRIPT_FILENAME", 15, script, strlen(script));
		}
		if (options.document_root != NULL) {
			add(to, "DOCUMENT_ROOT", 13, options.document_root, strlen(options.document_root));
		}
		return;
	}
	import_variables(to, add_self);
}

void request_fill_filter_table(void)
{
	const char *order = PG(variables_order);
	zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
	if (is_filtered() || order == NULL || strpbrk(order, "Ss") == NULL) {
		return;
	}
	/* $_SERVER has them, and whatever a script has made of it since. */
	zval *server = &PG(http_globals)[TRACK_VARS_SERVER], kept;
	ZVAL_COPY_VALUE(&kept, server);
	ZVAL_UNDEF(server);
	filter_variables(PARSE_SERVER, add_variables);
	filter_variables(PARSE_SERVER, add_self);
	ZVAL_COPY_VALUE(server, &kept);
}

static char *join(const char *before, const char *between, const char *after)
{
	char *joined = NULL;
	zend_spprintf(&joined, 0, "%s%s%s", before, between, after);
	return joined;
}

char *request_getenv(const char *name, size_t len)
{
	if (request.exchange.slot == NULL) {
		asked_of_environment(name);
		return NULL;
	}
	if (len > 5 && memcmp(name, "HTTP_", 5) == 0) {
		struct cursor cursor = records();
		struct record record;
		char *value = NULL;
		while (next_record(&cursor, &record)) {
			if (record.field == HY_FIELD_HEADER && has_cgi_name(&record, name, len)) {
				/* What is joined is freed with all that the request had. */
				const char *between = is(&record, "cookie", 6) ? "; " : ", ";
				value = value == NULL ? (char *)record.value : join(value, between, record.value);
			}
		}
		return value;
	}
	if (len > 4 && memcmp(name, "SSL_", 4) == 0) {
		struct cursor cursor = records();
		struct record record;
		while (next_record(&cursor, &record)) {
			if (record.field == HY_FIELD_VARIABLE && is(&record, name, len)) {
				return (char *)record.value;
			}
		}
		return NULL;
	}
	for (int i = 0; i < HY_FIELD_COUNT; i++) {
		if (is_name(&field_names[i], name, len)) {
			return (char *)request.field[i].at;
		}
	}
	if (len == 11 && memcmp(name, "REMOTE_USER", 11) == 0) {
		return (char *)remote_user();
	}
	for (size_t i = 0; i < CONSTANTS; i++) {
		if (is_name(&constants[i].name, name, len)) {
			return (char *)constants[i].value;
		}
	}
	return NULL;
}

void request_each_header(request_header_fn fn, void *to)
{
	if (request.exchange.slot == NULL) {
		return;
	}
	struct cursor cursor = records();
	struct record record;
	while (next_record(&cursor, &record)) {
		if (record.field == HY_FIELD_HEADER) {
			fn(record.name, record.name_len, record.value, record.value_len, to);
		}
	}
}
