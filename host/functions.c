/* The functions PHP code sees besides hayate_handle_request() (handle.c), hayate_on_worker_start() (worker_start.c), a
 * lazy filter_input(), and what a script of a web server must not see. */
#include "host.h"

#include "ext/standard/head.h"
#include "php_output.h"
#include "php_variables.h"

#include <ctype.h>

/* Ends the answer while the script goes on: what php-fpm's function of that name does. */
static PHP_FUNCTION(hayate_finish_request)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (request.exchange.slot == NULL || request.answered) {
		RETURN_FALSE;
	}
	php_output_end_all();
	php_header();
	output_finish(false);
	RETURN_TRUE;
}

static void add_request_header(const char *name, size_t name_len, const char *value, size_t value_len, void *to)
{
	/* "accept-language" → "Accept-Language", as php-fpm makes it from HTTP_ACCEPT_LANGUAGE */
	char *title = estrndup(name, name_len);
	bool start = true;
	for (size_t i = 0; i < name_len; i++) {
		if (start) {
			title[i] = (char)toupper((unsigned char)title[i]);
		}
		start = title[i] == '-';
	}
	zval *array = to;
	const zval *before = zend_hash_str_find(Z_ARRVAL_P(array), title, name_len);
	if (before != NULL) {
		zend_string *joined = strpprintf(0, "%s, %s", Z_STRVAL_P(before), value);
		add_assoc_str_ex(array, title, name_len, joined);
	} else {
		add_assoc_stringl_ex(array, title, name_len, value, value_len);
	}
	efree(title);
}

static PHP_FUNCTION(getallheaders)
{
	ZEND_PARSE_PARAMETERS_NONE();
	asked_by_packages_call("getallheaders()");
	array_init(return_value);
	request_each_header(add_request_header, return_value);
}

static void add_response_header(sapi_header_struct *h, void *to)
{
	const char *colon = memchr(h->header, ':', h->header_len);
	if (colon == NULL) {
		return;
	}
	const char *value = colon + 1;
	while (*value == ' ') {
		value++;
	}
	add_assoc_stringl_ex(to, h->header, (size_t)(colon - h->header), value,
	                     h->header_len - (size_t)(value - h->header));
}

static PHP_FUNCTION(apache_response_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	zend_llist_apply_with_argument(&SG(sapi_headers).headers, (llist_apply_with_arg_func_t)add_response_header,
	                               return_value);
}

/* As FrankenPHP has it: what is set so far goes out as an informational answer, and stays set; or as the answer's own
 * head. Symfony's responses look for this function. */
static PHP_FUNCTION(headers_send)
{
	zend_long status = 200;
	ZEND_PARSE_PARAMETERS_START(0, 1)
	Z_PARAM_OPTIONAL
	Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();
	if (status < 100 || status > 999) {
		zend_argument_value_error(1, "must be between 100 and 999");
		RETURN_THROWS();
	}
	if (status < 200) {
		RETURN_LONG(output_inform((uint16_t)status, &SG(sapi_headers)) ? SAPI_HEADER_SENT_SUCCESSFULLY
		                                                               : SAPI_HEADER_SEND_FAILED);
	}
	SG(sapi_headers).http_response_code = (int)status;
	RETURN_LONG(sapi_send_headers());
}

/* Adds "Link: VALUE" to a list of headers. False when it is no such value; an exception is pending then. */
static bool add_hint(sapi_headers_struct *to, zval *value)
{
	ZVAL_DEREF(value);
	if (Z_TYPE_P(value) != IS_STRING) {
		zend_argument_type_error(1, "must be of type array|string, with strings in the array, %s given",
		                         zend_zval_type_name(value));
		return false;
	}
	for (size_t i = 0; i < Z_STRLEN_P(value); i++) {
		if ((unsigned char)Z_STRVAL_P(value)[i] < ' ') {
			zend_argument_value_error(1, "must not hold control characters, such as line breaks");
			return false;
		}
	}
	sapi_header_struct header;
	header.header_len = spprintf(&header.header, 0, "Link: %s", Z_STRVAL_P(value));
	zend_llist_add_element(&to->headers, &header);
	return true;
}

static void free_hint(void *header)
{
	efree(((sapi_header_struct *)header)->header);
}

/* 103 with links alone; what is set for the answer itself is not touched. */
static PHP_FUNCTION(hayate_early_hints)
{
	zend_string *one;
	HashTable *many;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_ARRAY_HT_OR_STR(many, one)
	ZEND_PARSE_PARAMETERS_END();
	sapi_headers_struct headers = {0};
	zend_llist_init(&headers.headers, sizeof(sapi_header_struct), free_hint, 0);
	bool fit = true;
	if (many == NULL) {
		zval value;
		ZVAL_STR(&value, one);
		fit = add_hint(&headers, &value);
	} else {
		zval *value;
		ZEND_HASH_FOREACH_VAL(many, value)
		{
			fit = fit && add_hint(&headers, value);
		}
		ZEND_HASH_FOREACH_END();
	}
	bool sent = fit && zend_llist_count(&headers.headers) > 0 && output_inform(103, &headers);
	zend_llist_destroy(&headers.headers);
	if (!fit) {
		RETURN_THROWS();
	}
	RETURN_BOOL(sent);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, handler, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_on_worker_start, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, run, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_early_hints, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_MASK(0, links, MAY_BE_ARRAY | MAY_BE_STRING, NULL)
ZEND_END_ARG_INFO()

const zend_function_entry hayate_functions[] = {
    ZEND_FE(hayate_handle_request, arginfo_handle) ZEND_FALIAS(frankenphp_handle_request, hayate_handle_request,
                                                               arginfo_handle)
        ZEND_FE(hayate_on_worker_start, arginfo_on_worker_start) ZEND_FE(hayate_finish_request, arginfo_bool)
            ZEND_FALIAS(fastcgi_finish_request, hayate_finish_request, arginfo_bool)
                ZEND_FE(getallheaders, arginfo_array) ZEND_FALIAS(apache_request_headers, getallheaders, arginfo_array)
                    ZEND_FE(apache_response_headers, arginfo_array) ZEND_FE(headers_send, arginfo_headers_send)
                        ZEND_FE(hayate_early_hints, arginfo_early_hints) ZEND_FE_END};

/*
 * filter_input(INPUT_SERVER) reads tables that a SAPI fills while it registers variables. Filling them for every
 * request would double the price of $_SERVER for something few scripts use, so they are filled by the first call that
 * reads them.
 */
static zif_handler filter_input_handler, filter_has_var_handler, filter_input_array_handler;
static const struct hy_slot *filled_for;
static uint64_t filled_at;

static void fill_filter_tables(void)
{
	const struct hy_slot *slot = request.exchange.slot;
	if (slot == NULL || (filled_for == slot && filled_at == slot->claim)) {
		return;
	}
	filled_for = slot;
	filled_at = slot->claim;
	request_fill_filter_table();
}

static ZEND_FUNCTION(lazy_filter_input)
{
	asked_by_packages_call("filter_input()");
	fill_filter_tables();
	filter_input_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}
static ZEND_FUNCTION(lazy_filter_has_var)
{
	asked_by_packages_call("filter_has_var()");
	fill_filter_tables();
	filter_has_var_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}
static ZEND_FUNCTION(lazy_filter_input_array)
{
	asked_by_packages_call("filter_input_array()");
	fill_filter_tables();
	filter_input_array_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void functions_wrap(const char *name, zif_handler *before, zif_handler handler)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	if (function != NULL && function->type == ZEND_INTERNAL_FUNCTION) {
		*before = function->internal_function.handler;
		function->internal_function.handler = handler;
	}
}

void functions_of_boot_scripts(const zend_function_entry *functions)
{
	/* Their names last as long as they do. After PHP's start names are taken for those of a request, and there is none
	 * yet: without OPcache, which keeps them all, nobody could. */
	zend_interned_strings_switch_storage(false);
	bool failed = zend_register_functions(NULL, functions, CG(function_table), MODULE_PERSISTENT) == FAILURE;
	zend_interned_strings_switch_storage(true);
	if (failed) {
		zygote_failed("the functions of the boot scripts cannot be registered");
	}
}

/*
 * PHP's functions that the boot scripts call and a list of `disable_functions` may have, for these scripts alone: as
 * Hayate\Boot\putenv(), which PHP takes for putenv() in their name space.
 */
static void call_for_boot_script(const char *name, zif_handler handler, INTERNAL_FUNCTION_PARAMETERS)
{
	const zend_execute_data *caller = owner_calling(execute_data->prev_execute_data);
	if (caller == NULL || !owner_is_boot_script(ZSTR_VAL(caller->func->op_array.filename))) {
		zend_throw_error(NULL, "Call to undefined function Hayate\\Boot\\%s()", name);
		return;
	}
	handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}
#define OF_BOOT_SCRIPTS(X) X(chdir) X(error_log) X(getenv) X(ini_get) X(ini_set) X(php_strip_whitespace) X(putenv)
#define GIVEN(name)                                                                                                    \
	static zif_handler given_##name;                                                                                   \
	static ZEND_FUNCTION(of_boot_scripts_##name)                                                                       \
	{                                                                                                                  \
		call_for_boot_script(#name, given_##name, INTERNAL_FUNCTION_PARAM_PASSTHRU);                                   \
	}
OF_BOOT_SCRIPTS(GIVEN)

void functions_disabled_for_others(void)
{
	static const struct {
		const char *name, *known;
		zif_handler *before, handler;
	} all[] = {
#define ENTRY(name) {"Hayate\\Boot\\" #name, #name, &given_##name, ZEND_FN(of_boot_scripts_##name)},
	    OF_BOOT_SCRIPTS(ENTRY)};
	static zend_function_entry given[sizeof all / sizeof all[0] + 1];
	const zend_module_entry *standard = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("standard"));
	size_t count = 0;
	for (size_t i = 0; standard != NULL && options_is_project() && i < sizeof all / sizeof all[0]; i++) {
		const zend_function_entry *entry = standard->functions;
		while (entry->fname != NULL && strcmp(entry->fname, all[i].known) != 0) {
			entry++;
		}
		if (entry->fname != NULL && !zend_hash_str_exists(CG(function_table), all[i].known, strlen(all[i].known))) {
			*all[i].before = entry->handler;
			given[count] = *entry;
			given[count].fname = all[i].name;
			given[count++].handler = all[i].handler;
		}
	}
	if (count > 0) {
		functions_of_boot_scripts(given);
	}
}

void functions_startup(void)
{
	functions_wrap("filter_input", &filter_input_handler, ZEND_FN(lazy_filter_input));
	functions_wrap("filter_has_var", &filter_has_var_handler, ZEND_FN(lazy_filter_has_var));
	functions_wrap("filter_input_array", &filter_input_array_handler, ZEND_FN(lazy_filter_input_array));
}

static int (*register_builtin_extensions)(void);

/*
 * libphp is made for command lines as well, and Debian's has pcntl and chroot() built in. A request that forks would
 * leave a second process with its worker's name, which takes requests and answers into those of others; php-fpm has
 * neither. So they are taken out again before any extension starts.
 */
static int register_for_a_server(void)
{
	int result = register_builtin_extensions();
	const zend_module_entry *pcntl = zend_hash_str_find_ptr(&module_registry, "pcntl", 5);
	if (pcntl != NULL) {
		int gap = pcntl->module_number;
		zend_unregister_functions(pcntl->functions, -1, NULL);
		zend_hash_str_del(&module_registry, "pcntl", 5);
		/* The next number is one more than there are modules: without this, two would bear the last one's. Nothing has
		 * been registered under a number yet, since no extension has started. */
		zend_module_entry *module;
		ZEND_HASH_MAP_FOREACH_PTR(&module_registry, module)
		{
			module->module_number -= module->module_number > gap;
		}
		ZEND_HASH_FOREACH_END();
	}
	zend_hash_str_del(CG(function_table), "chroot", 6);
	return result;
}

void functions_before_startup(void)
{
	register_builtin_extensions = php_register_internal_extensions_func;
	php_register_internal_extensions_func = register_for_a_server;
}
