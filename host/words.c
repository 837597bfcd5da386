/*
 * What code is about, by the names that it uses: of PHP's own functions, and those that libraries and frameworks share.
 */
#include "words.h"

#include "syntax.h"

#include <string.h>
#include <strings.h>

static const char *const superglobals[] = {"_GET", "_POST", "_COOKIE", "_REQUEST", "_FILES", "_SESSION", "_SERVER"};
/* Functions of PHP that take or give what belongs to the request. */
static const char *const functions[] = {
    "session_start",
    "session_name",
    "session_id",
    "session_create_id",
    "session_regenerate_id",
    "session_set_cookie_params",
    "header",
    "header_remove",
    "header_register_callback",
    "headers_list",
    "headers_sent",
    "setcookie",
    "setrawcookie",
    "flush",
    "http_response_code",
    "filter_input",
    "filter_input_array",
    "filter_has_var",
    "get_browser",
    "session_status",
    "getallheaders",
    "apache_request_headers",
    "hayate_early_hints",
};
/* Functions that print. */
static const char *const prints[] = {
    "readfile", "fpassthru", "passthru", "system",      "printf",         "vprintf",
    "print_r",  "var_dump",  "phpinfo",  "show_source", "highlight_file",
};
/* Methods that make a request of the superglobals, by the names that libraries share for them. */
static const char *const methods[] = {"fromGlobals", "createFromGlobals", "createServerRequestFromGlobals", "capture"};
/* Functions of frameworks that give what belongs to the request. */
static const char *const of_frameworks[] = {"request",    "session", "cookie",     "auth",  "old",         "csrf_token",
                                            "csrf_field", "url",     "secure_url", "asset", "secure_asset"};
/* Classes that stand for the request, the visitor or the session, by the last parts of their names: asked by static
 * methods, but for those that only set something up. */
static const char *const facades[] = {"Request", "Auth", "Session", "Cookie", "URL"};
static const char *const sets_up[] = {
    "macro",
    "mixin",
    "extend",
    "provider",
    "viaRequest",
    "setTrustedProxies",
    "setTrustedHosts",
    "setFactory",
    "create",
    "routes",
    "hasMacro",
    "setDefaultDriver",
    "flushMacros",
    "shouldUse",
    "resolveUsersUsing",
    "enableHttpMethodParameterOverride",
    "forceScheme",
    "forceHttps",
    "forceRootUrl",
    "useOrigin",
    "useAssetOrigin",
    "defaults",
    "formatHostUsing",
    "formatPathUsing",
    "setKeyResolver",
    "resolveMissingNamedRoutesUsing",
    "setDefaultPathAndDomain",
};
/* What a container is asked by, for what it holds by a name. */
static const char *const gives[] = {"make", "get", "resolve", "app"};
/* Types of arguments that are the request. */
static const char *const requests[] = {"Request", "ServerRequestInterface", "ServerRequest", "IncomingRequest"};
/* Methods that read the clock or draw: drawn once, a nonce would be one for all visitors. */
static const char *const drawing_methods[] = {
    "now", "today", "tomorrow", "yesterday", "uuid1", "uuid4", "uuid6", "uuid7", "orderedUuid", "randomBytes",
};
/* Static methods whose names say less, by the last part of the class's name. */
static const struct {
	const char *class, *method;
} static_methods[] = {
    {"Uuid", "v1"},  {"Uuid", "v4"},    {"Uuid", "v6"},  {"Uuid", "v7"},
    {"Str", "uuid"}, {"Str", "random"}, {"Str", "ulid"}, {"Ulid", "generate"},
};
/* Classes of libraries whose objects hold the time or a random number from the beginning. */
static const char *const classes[] = {"Carbon", "CarbonImmutable", "Ulid", "UuidV1", "UuidV4", "UuidV6", "UuidV7"};
/* Functions that look for a variable of the environment: PHP's own, and as projects call theirs. */
static const char *const of_environment[] = {"getenv", "env", "get_env"};
/* Functions of Laravel that end the request by an exception, always or where their first argument is so. */
static const char *const aborts[] = {"abort", "abort_if", "abort_unless"};
static const char *const hears_errors[] = {"set_error_handler", "set_exception_handler"};
/* PHP's own functions that keep a function for later; the others that are given one call it. */
static const char *const keeps[] = {"spl_autoload_register", "set_error_handler", "set_exception_handler",
                                    "register_shutdown_function", "register_tick_function"};

bool word_is_superglobal(const char *variable)
{
	return IS_ONE_OF(superglobals, variable, false);
}

bool word_asks(const char *function)
{
	/* Of PHP's output there is one for each visitor. */
	return IS_ONE_OF(functions, function, false) || IS_ONE_OF(of_frameworks, function, false) ||
	       strncasecmp(function, "ob_", 3) == 0 || strncasecmp(function, "output_", 7) == 0;
}

bool word_asks_method(const char *method)
{
	return IS_ONE_OF(methods, method, false);
}

bool word_asks_class(const char *class_name, const char *method)
{
	return IS_ONE_OF(facades, name_last_part(class_name), false) && !IS_ONE_OF(sets_up, method, false);
}

bool word_gives(const char *function)
{
	return IS_ONE_OF(gives, function, false);
}

bool word_is_request(const char *class_name)
{
	return IS_ONE_OF(requests, name_last_part(class_name), false);
}

bool word_prints(const char *function)
{
	return IS_ONE_OF(prints, function, false);
}

bool word_draws_method(const char *class_name, const char *method)
{
	if (IS_ONE_OF(drawing_methods, method, false)) {
		return true;
	}
	for (size_t i = 0; class_name != NULL && i < sizeof static_methods / sizeof static_methods[0]; i++) {
		if (strcasecmp(name_last_part(class_name), static_methods[i].class) == 0 &&
		    strcasecmp(method, static_methods[i].method) == 0) {
			return true;
		}
	}
	return false;
}

bool word_draws_class(const char *class_name)
{
	return IS_ONE_OF(classes, name_last_part(class_name), false);
}

bool word_of_environment(const char *function)
{
	return IS_ONE_OF(of_environment, function, false);
}

bool word_aborts(const char *function)
{
	return IS_ONE_OF(aborts, function, false);
}

bool word_keeps(const char *function)
{
	return IS_ONE_OF(keeps, function, false);
}

bool word_hears_errors(const char *function)
{
	return IS_ONE_OF(hears_errors, function, false);
}
