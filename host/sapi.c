/* The SAPI module: which of the host's functions PHP calls for what. Named "hayate" to PHP code. */
#include "host.h"
#include "stray.h"

#include "php_main.h"
#include "php_variables.h"

static int host_startup(sapi_module_struct *module);

static int activate(void)
{
	if (request.exchange.slot != NULL && !options.worker_mode) {
		user_ini_activate(SG(request_info).path_translated);
	}
	return SUCCESS;
}

static size_t read_post(char *to, size_t len)
{
	if (request.exchange.slot == NULL) {
		asked_by_packages_call("php://input");
		return 0;
	}
	/* Once the answer is over, by fastcgi_finish_request() for one, there is no more of it, as with php-fpm: how much
	 * has come by then is chance. */
	if (request.answered) {
		return 0;
	}
	size_t total = 0;
	/* PHP takes a short read for the end. */
	while (total < len) {
		size_t n = hy_body_read(&request.exchange, to + total, len - total);
		if (n == 0) {
			break;
		}
		total += n;
	}
	/* A body that breaks off is no shorter body: whoever asks is told, by connection_aborted(). The script ends at what
	 * it says next, as PHP has it, and not here: it may have yet to note what it has stored of the body. */
	if (total < len && !is_stray() && hy_aborted(&request.exchange)) {
		PG(connection_status) |= PHP_CONNECTION_ABORTED;
	}
	return total;
}

static char *read_cookies(void)
{
	return (char *)request.cookie;
}

static void register_variables(zval *to)
{
	request_register_server(to);
}

static void log_message(const char *message, int syslog_type)
{
	log_record(message);
}

static void ini_default(HashTable *configuration, const char *name, const char *value)
{
	zval v;
	ZVAL_NEW_STR(&v, zend_string_init(value, strlen(value), true));
	zend_hash_str_update(configuration, name, strlen(name), &v);
}

static void ini_defaults(HashTable *configuration)
{
	/* as php-fpm; php.ini says otherwise in production */
	ini_default(configuration, "display_errors", "1");
	/* Restarting opcache under live workers is not safe from here; a new generation starts afresh instead. */
	ini_default(configuration, "opcache.force_restart_timeout", "0");
}

static void info(ZEND_MODULE_INFO_FUNC_ARGS)
{
	php_printf("Server API module of the Hayate application server\n");
}

static PHP_MINIT_FUNCTION(hayate)
{
	functions_startup();
	opening_startup();
	opcache_before_startup();
	return SUCCESS;
}

/* All code of the request has run. What it has left unread of its body is the front's affair: PHP would wait for it, as
 * long as the client likes, with the answer's end still to come. */
static int body_over(void)
{
	SG(post_read) = 1;
	return SUCCESS;
}

static zend_module_entry hayate_module = {
    STANDARD_MODULE_HEADER,
    "hayate",
    NULL,
    PHP_MINIT(hayate),
    NULL,
    NULL,
    NULL,
    info,
    NULL,
    NO_MODULE_GLOBALS,
    body_over,
    STANDARD_MODULE_PROPERTIES_EX,
};

static int host_startup(sapi_module_struct *module)
{
	int result = php_module_startup(module, &hayate_module);
	opcache_after_startup();
	randomness_after_startup();
	request_after_startup();
	return result;
}

sapi_module_struct hayate_sapi = {
    .name = (char *)HAYATE_SAPI_NAME,
    .pretty_name = (char *)"Hayate",
    .startup = host_startup,
    .shutdown = php_module_shutdown_wrapper,
    .activate = activate,
    .ub_write = output_write,
    .flush = output_flush,
    .getenv = request_getenv,
    .sapi_error = php_error,
    .header_handler = output_header,
    .send_headers = output_send_headers,
    .read_post = read_post,
    .read_cookies = read_cookies,
    .register_server_variables = register_variables,
    .log_message = log_message,
    .ini_defaults = ini_defaults,
    .php_ini_ignore_cwd = 1,
    .additional_functions = hayate_functions,
};
