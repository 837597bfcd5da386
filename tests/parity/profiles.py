"""The configurations cases run under: each is one php-fpm, one Hayate classic and one Hayate worker, started once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Profile:
    """`root` is a theme that is its own document root (with front controller if `front`), else all share one."""

    doc: str
    ini: Mapping[str, str] = dataclasses.field(default_factory=dict)
    root: str | None = None
    front: bool = False


PROFILES = {
    "default": Profile("Debian's php.ini for production: errors logged and not shown, output_buffering 4096"),
    "display": Profile(
        "a developer's machine: errors shown as plain text",
        {
            "display_errors": "1",
            "display_startup_errors": "1",
            "html_errors": "0",
            "error_reporting": "32767",
            "expose_php": "1",
            "output_buffering": "0",
            "error_prepend_string": "[prepended]",
            "error_append_string": "[appended]",
            "session.upload_progress.cleanup": "0",
            "session.upload_progress.freq": "0",
        },
    ),
    "limits": Profile(
        "small limits, each to be hit by a small request",
        {
            "post_max_size": "8K",
            "upload_max_filesize": "1K",
            "max_file_uploads": "3",
            "max_input_vars": "10",
            "max_input_nesting_level": "3",
            "max_multipart_body_parts": "8",
            "memory_limit": "16M",
        },
    ),
    "unparsed": Profile("the script reads request bodies itself", {"enable_post_data_reading": "0"}),
    "hardened": Profile(
        "a hosting company's restrictions",
        {
            "open_basedir": "{docroot}/environment:{docroot}/server:{docroot}/upload:{docroot}/show.php:{worker}:{tmp}",
            "disable_functions": "exec,shell_exec,system,phpinfo",
            "disable_classes": "SplFileObject",
            "file_uploads": "0",
            "allow_url_fopen": "0",
            "user_ini.filename": "",
            "cgi.fix_pathinfo": "0",
            "session.use_strict_mode": "1",
        },
    ),
    "everything": Profile(
        "old habits: every superglobal, arguments in $argv, compressed output",
        {
            "variables_order": "EGPCS",
            "request_order": "CGP",
            "register_argc_argv": "1",
            "auto_globals_jit": "0",
            "zlib.output_compression": "1",
            "default_charset": "ISO-8859-1",
            "arg_separator.input": ";&",
            "html_errors": "1",
            "display_errors": "1",
        },
    ),
    "filtered": Profile("what comes from the client is filtered", {"filter.default": "special_chars"}),
    "filtered_at_once": Profile(
        "it is filtered before the script runs, though it may not ask for it",
        {"filter.default": "full_special_chars", "filter.default_flags": "0", "auto_globals_jit": "0", "variables_order": "EGPCS"},
    ),
    "front": Profile("every path that is no file goes to /index.php", root="front", front=True),
}
