"""What surrounds the script: settings, directories, extensions, identity."""

from __future__ import annotations

from parity.dsl import TIMESTAMP, Case, get, head, post

CASES = [
    Case("ini", doc="settings that matter"),
    Case("ini_all", doc="every setting there is"),
    Case("ini_set", get(), get(), doc="ini_set() and its limits"),
    Case(
        "user_ini/",
        get(),
        get("deep/"),
        get(),
        doc=".user.ini, and a deeper one",
        classic_only="a .user.ini beside the script is for scripts that the server itself runs",
    ),
    Case("main_script", doc="what is known of the script itself", classic_only="the worker's script is the main one"),
    Case(
        "wrapped/",
        get(),
        get("?exit"),
        get("?throw"),
        head(),
        doc="auto_prepend_file and auto_append_file from a .user.ini",
        classic_only="the files stand around the worker's script, not around each request",
    ),
    Case("cwd", doc="the working directory and relative paths"),
    Case("restricted", profile="hardened", doc="open_basedir, disable_functions and their like"),
    Case("opcache", doc="OPcache is on"),
    Case("opcache_hits", get("?forget"), get(), get(), get(), doc="OPcache is shared"),
    Case("changed_file", doc="OPcache and changed files"),
    Case("apcu", get("?clear"), get(), get(), doc="APCu keeps values between requests"),
    Case("random", get(), get("?compare"), doc="randomness"),
    Case("dates", doc="dates and time zones"),
    Case("phpinfo", doc="the names in phpinfo()"),
    Case("phpinfo_html", doc="the HTML of phpinfo()"),
    Case("extensions", doc="loaded extensions"),
    Case("functions", doc="every internal function"),
    Case("classes", doc="every internal class"),
    Case("defined", doc="every constant"),
    Case("identity", doc="who runs the script"),
    Case("mail", doc="mail() without a mailer"),
    Case("streams", doc="streams and wrappers"),
    Case("sqlite", doc="a database in memory"),
    Case("libraries", doc="the extensions of a typical site"),
    Case("locale", get(), get(), doc="locales"),
    Case("backtrace", doc="nothing stands below the script", classic_only="the worker's script stands below it"),
    Case("threads", doc="functions of other servers"),
    Case("limits", doc="memory and recursion", normalise=[TIMESTAMP]),
    Case("ini", post("", form="a=1"), profile="display", name="ini_display", doc="settings of a developer"),
]
