<?php
/*
 * The worker script of the worker and rewind modes: each request includes the test that its URL names. As php-cgi's
 * auto_prepend_file it runs the test in the same way once, in place of the script itself.
 *
 * It has no object and no variable of its own, so that a test counts its objects from 1 and finds no variable but its
 * own. By construction a test runs inside a function here: its variables are no globals. With CONFORMANCE_RESTORE in
 * the environment it puts back, before each request, what PHP code can put back, as an application in worker mode with
 * state kept has to do.
 */
function conformance_restore(): void
{
    foreach (ini_get_all(null, true) as $name => $setting) {
        if ($setting['local_value'] !== $setting['global_value']) {
            ini_restore($name);
        }
    }
    set_error_handler(null);
    set_exception_handler(null);
    error_reporting((int) ini_get('error_reporting'));
    array_map('spl_autoload_unregister', spl_autoload_functions());
    /* Once set, it would win over any later ini_set() of a test. */
    if (date_default_timezone_get() !== (ini_get('date.timezone') ?: 'UTC')) {
        date_default_timezone_set(ini_get('date.timezone') ?: 'UTC');
    }
    setlocale(LC_ALL, 'C');
    umask(022);
    ignore_user_abort(false);
    set_time_limit((int) ini_get('max_execution_time'));
    libxml_use_internal_errors(false);
    mb_regex_set_options('pr');
}

function conformance_request(): void
{
    if (getenv('CONFORMANCE_RESTORE')) {
        conformance_restore();
    }
    /* Not $_SERVER: some tests run without it. */
    chdir(dirname(getenv('SCRIPT_FILENAME')));
    include getenv('SCRIPT_FILENAME');
}

/* With rewind, the next call rewinds into the first. */
while ((function_exists('hayate_handle_request') ? 'hayate_handle_request' : 'call_user_func')('conformance_request')) {
}
exit;
