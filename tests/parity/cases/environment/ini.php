<?php
require_once __DIR__ . '/../show.php';
foreach (['memory_limit', 'max_execution_time', 'max_input_time', 'upload_max_filesize', 'post_max_size', 'max_file_uploads', 'file_uploads',
    'default_charset', 'default_mimetype', 'output_buffering', 'short_open_tag', 'precision', 'serialize_precision', 'variables_order',
    'request_order', 'register_argc_argv', 'auto_globals_jit', 'enable_dl', 'expose_php', 'display_errors', 'log_errors', 'error_reporting',
    'allow_url_fopen', 'allow_url_include', 'include_path', 'open_basedir', 'disable_functions', 'disable_classes', 'zend.assertions',
    'zend.enable_gc', 'max_input_vars', 'max_input_nesting_level', 'user_ini.filename', 'user_ini.cache_ttl', 'realpath_cache_size',
    'realpath_cache_ttl', 'cgi.fix_pathinfo', 'cgi.discard_path', 'date.timezone', 'mail.add_x_header', 'sendmail_path', 'implicit_flush',
    'html_errors', 'pcre.jit', 'opcache.enable', 'opcache.enable_cli', 'opcache.memory_consumption', 'opcache.validate_timestamps',
    'opcache.revalidate_freq', 'opcache.jit', 'apc.enabled', 'apc.enable_cli', 'mysqli.default_socket', 'default_socket_timeout',
    'auto_prepend_file', 'auto_append_file', 'doc_root', 'user_dir', 'sys_temp_dir', 'arg_separator.input', 'arg_separator.output',
    'ignore_user_abort', 'assert.active', 'hard_timeout', 'auto_detect_line_endings'] as $key) {
    show($key, ini_get($key));
}
show('unknown', ini_get('no.such.setting'));
