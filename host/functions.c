/* The functions PHP code sees besides hayate_handle_request() (handle.c), a lazy filter_input(), and what a script of a
 * web server must not see. */
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

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, handler, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

const zend_function_entry hayate_functions[] = {
    ZEND_FE(hayate_handle_request, arginfo_handle) ZEND_FALIAS(
        frankenphp_handle_request, hayate_handle_request, arginfo_handle) ZEND_FE(hayate_finish_request, arginfo_bool)
        ZEND_FALIAS(fastcgi_finish_request, hayate_finish_request, arginfo_bool) ZEND_FE(getallheaders, arginfo_array)
            ZEND_FALIAS(apache_request_headers, getallheaders, arginfo_array)
                ZEND_FE(apache_response_headers, arginfo_array) ZEND_FE_END};

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
	zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
	const zval *server = &PG(http_globals)[TRACK_VARS_SERVER];
	zend_string *name;
	zval *value;
	if (Z_TYPE_P(server) != IS_ARRAY) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(server), name, value)
	{
		if (name != NULL && Z_TYPE_P(value) == IS_STRING) {
			char *copy = estrndup(Z_STRVAL_P(value), Z_STRLEN_P(value));
			size_t len;
			sapi_module.input_filter(PARSE_SERVER, ZSTR_VAL(name), &copy, Z_STRLEN_P(value), &len);
			efree(copy);
		}
	}
	ZEND_HASH_FOREACH_END();
}

static ZEND_FUNCTION(lazy_filter_input)
{
	fill_filter_tables();
	filter_input_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}
static ZEND_FUNCTION(lazy_filter_has_var)
{
	fill_filter_tables();
	filter_has_var_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}
static ZEND_FUNCTION(lazy_filter_input_array)
{
	fill_filter_tables();
	filter_input_array_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void wrap(const char *name, zif_handler *before, zif_handler handler)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	if (function != NULL && function->type == ZEND_INTERNAL_FUNCTION) {
		*before = function->internal_function.handler;
		function->internal_function.handler = handler;
	}
}

void functions_startup(void)
{
	wrap("filter_input", &filter_input_handler, ZEND_FN(lazy_filter_input));
	wrap("filter_has_var", &filter_has_var_handler, ZEND_FN(lazy_filter_has_var));
	wrap("filter_input_array", &filter_input_array_handler, ZEND_FN(lazy_filter_input_array));
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
