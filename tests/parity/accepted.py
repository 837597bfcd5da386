"""Every difference from nginx + php-fpm that is accepted, with its reason.

An entry that matches nothing any more fails the test of its case, so this list is what differs today and no more. An
entry whose `case` is a pattern has to occur in one of the cases it covers, once all of them have run. Where versions of
nginx and PHP differ, `here` says with which of them an entry holds.
"""

from __future__ import annotations

import re
import subprocess

from lib.over import H2, TLS
from lib.servers import PHP_VERSION

from .compare import Accepted


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


PHP = _numbers(PHP_VERSION)
#: Debian 12 has 1.22, Debian 13 has 1.26, sid has 1.30.
NGINX = _numbers(
    re.search(
        r"nginx/([\d.]+)",
        subprocess.run(["/usr/sbin/nginx", "-v"], capture_output=True, text=True, check=True, timeout=60).stderr,
    )[1]
)
STRICT_NGINX = NGINX >= (1, 23)
#: HTTP_HOST is made of what nginx understood: lower case, no trailing dot, no empty port, the server's name where there is none.
OWN_HOST = NGINX >= (1, 30)

PHRASES = "where PHP names no reason phrase, or an outdated one, Hayate sends the registered one (RFC 9110)"
STANDARD_CODE = "a final answer has a status of 200 to 999; nginx passes on what no client can read, Hayate answers 500"
NOT_A_HEADER = "a line that is no header is dropped and logged; nginx answers 502 and loses the whole answer"
HOP_BY_HOP = "headers about the connection are not the script's to send (RFC 9110, 7.6.1)"
HIDDEN = "what is hidden does not exist for a visitor; 403 would tell that it is there"
SOURCE = "a file that may hold PHP source is never sent; nginx sends it"
LISTS = "header lines of one name are one list (RFC 9110, 5.2), as nginx has it since 1.23"
OF_FPM = "belongs to php-fpm itself"
ODD_LENGTH = "a wrong header about the body is dropped and logged; nginx since 1.23 answers 502 and loses the whole answer"
RELATIVE = "a relative redirect is right behind any proxy; nginx inserts a host and its own port"

NO_TYPE = "nginx leaves the type out of 204 over HTTP/2, and has it over HTTP/1.1"
URI_OF_H2 = "what is no URI (RFC 3986) ends the stream by an error; over HTTP/1.1 it is taken, or 400; browsers send none such"


_KNOWN: list[Accepted] = [
    # --- the servers themselves
    Accepted("*", "header:server", "each server names itself, or does not", reference=r"nginx/[\d.]+"),
    Accepted("*", "header:x-accel-*", "nginx acts on these; Hayate leaves them to a proxy in front of it"),
    Accepted("*", "server page", "each server has error pages of its own; Hayate's tell neither version nor path"),
    # --- the environment
    Accepted("environment/ini", "body", OF_FPM, reference=r"cgi\..*", hayate=r"cgi\.\w+ = false"),
    Accepted("environment/ini_display", "body", OF_FPM, reference=r"cgi\..*", hayate=r"cgi\.\w+ = false"),
    Accepted("environment/ini_all", "body", OF_FPM, reference=r"(cgi|fastcgi|fpm)\..*"),
    Accepted(
        "environment/ini_all",
        "body",
        "opcache may never kill a worker to restart its cache; a reload starts a new generation",
        reference=r"opcache\.force_restart_timeout = '180' 4",
        hayate=r"opcache\.force_restart_timeout = '0' 4",
    ),
    Accepted("environment/phpinfo", "body", OF_FPM, reference=r"(cgi|fastcgi|fpm)\..*|cgi-fcgi|php-fpm"),
    Accepted("environment/phpinfo", "body", "Hayate's own section", hayate="hayate"),
    Accepted("environment/extensions", "body", OF_FPM, reference="cgi-fcgi"),
    Accepted("environment/extensions", "body", "Hayate's own extension", hayate="hayate"),
    Accepted("environment/functions", "body", OF_FPM, reference="fpm_get_status"),
    Accepted("environment/functions", "body", "Hayate's own functions", hayate=r"(hayate|frankenphp)_\w+"),
    Accepted("environment/functions", "body", "offered in addition, as Apache does", hayate="apache_response_headers"),
    Accepted("environment/functions", "body", "offered in addition, as FrankenPHP does: early hints", hayate="headers_send"),
    Accepted("environment/threads", "body", OF_FPM, reference="fpm_get_status = true"),
    Accepted(
        "output/paths", "body", "Hayate's PHP has a name of its own", reference='.*"fpm-fcgi"', hayate='.*"hayate"'
    ),
    Accepted(
        "output/paths",
        "body",
        "the host is libphp-embed, whose configuration Debian keeps in a directory of its own",
        reference=r".*/etc/php/[\d.]+/fpm.*",
        hayate=r".*/etc/php/[\d.]+/embed.*",
    ),
    Accepted(
        "output/paths", "body", "the host's file", reference="PHP_BINARY .*php-fpm.*", hayate="PHP_BINARY .*hayate.*"
    ),
    Accepted(
        "lifecycle/descriptors",
        "body",
        "child processes inherit no socket at all; nor those of php-fpm since 8.4",
        reference="[1-9]",
        hayate="0",
        here=PHP < (8, 4),
    ),
    Accepted(
        "environment/identity",
        "body",
        "workers cannot gain privileges",
        reference='no new privileges = "0"',
        hayate='no new privileges = "1"',
    ),
    # --- the status line
    Accepted("headers/location", "reason", PHRASES, reference="Moved Temporarily", hayate="Found"),
    Accepted(
        "headers/status_line",
        "reason",
        PHRASES,
        reference="(Service Temporarily Unavailable)?",
        hayate="Not Found|Service Unavailable",
    ),
    Accepted(
        "headers/status_line",
        "status",
        "a status line without a status is ignored; nginx answers 502 and loses the whole answer",
        request="GET ?line=word",
        reference="502 Bad Gateway",
        hayate="200 OK",
    ),
    Accepted("headers/response_code", "reason", PHRASES, hayate=r"[A-Z][\w' ]+"),
    Accepted("headers/code_and_line", "reason", PHRASES, reference="", hayate="I'm a teapot"),
    Accepted("headers/after_output", "reason", PHRASES, hayate="Non Authoritative Information"),
    Accepted("headers/after_output_unbuffered", "reason", PHRASES, hayate="Non Authoritative Information"),
    Accepted("input/api", "reason", PHRASES, reference="", hayate="Unprocessable Entity"),
    Accepted(
        "headers/impossible_code",
        "status",
        STANDARD_CODE,
        reference="(502|100|101|103|1000) .*",
        hayate="500 Internal Server Error",
    ),
    # --- headers of answers
    Accepted(
        "headers/length",
        "status",
        ODD_LENGTH,
        reference="502 Bad Gateway",
        hayate="200 OK",
        here=STRICT_NGINX,
    ),
    Accepted(
        "headers/own_server_headers",
        "status",
        ODD_LENGTH,
        reference="502 Bad Gateway",
        hayate="200 OK",
        here=STRICT_NGINX,
    ),
    Accepted(
        "headers/content_type",
        "header:content-type",
        "of two types the last counts, as with nginx before 1.23; now it takes the first and logs the other",
        request="*twice*",
        reference="text/html;charset=UTF-8",
        hayate="text/plain;charset=UTF-8",
        here=STRICT_NGINX,
    ),
    Accepted("headers/malformed", "status", NOT_A_HEADER, reference="502 Bad Gateway", hayate="200 OK"),
    Accepted("headers/malformed", "header:x-ã*", "the name of a header is ASCII (RFC 9110, 5.6.2)", reference="1"),
    Accepted("headers/own_server_headers", "header:upgrade", HOP_BY_HOP, reference="websocket"),
    Accepted("headers/own_server_headers", "header:trailer", HOP_BY_HOP, reference="X-T"),
    Accepted("headers/own_server_headers", "header:proxy-connection", HOP_BY_HOP, reference="close"),
    # --- what the script learns about the request
    Accepted(
        "server/all", "body", "the server's name", reference='.*SERVER_SOFTWARE. = "nginx/.*', hayate='.* = "hayate"'
    ),
    Accepted("server/order", "body", "no order is promised: php-fpm's is that of a hash table"),
    Accepted(
        "server/paths_not_fixed",
        "body",
        "with cgi.fix_pathinfo off php-fpm makes PHP_SELF the path info; Hayate has no use for the setting",
        reference="PHP_SELF = .*",
        hayate='PHP_SELF = "/server/paths.php.*"',
    ),
    Accepted(
        "server/http_headers", "body", LISTS, request="a header twice", hayate='.* = "a, b"', here=not STRICT_NGINX
    ),
    Accepted(
        "server/http_headers",
        "body",
        LISTS,
        request="Accept twice",
        hayate='.* = "text/html, text/plain"',
        here=not STRICT_NGINX,
    ),
    Accepted(
        "server/getallheaders",
        "body",
        LISTS,
        request="twice",
        reference='.*X-Twice. = "b"',
        hayate='.* = "a, b"',
        here=not STRICT_NGINX,
    ),
    Accepted("input/cookies", "body", LISTS, request="two Cookie headers", here=not STRICT_NGINX),
    Accepted(
        "server/http_headers",
        "body",
        "a tab around a value is white space like any other (RFC 9110, 5.5)",
        request="spaces around",
        reference=r'.*"\\ttab\\t"',
        hayate='.*"tab"',
    ),
    Accepted(
        "server/getallheaders",
        "body",
        "offered in addition, as Apache does",
        hayate=r"apache_response_headers( = true|.X-(One|Two). = .*)",
    ),
    Accepted(
        "server/getallheaders",
        "body",
        "nginx names a type and a length of bodies that are not there",
        reference=r'getallheaders.Content-(Length|Type). = ""',
    ),
    Accepted(
        "server/host",
        "body",
        "the name the client asked for, if the application answers to it, and not the first one configured",
        reference='SERVER_NAME = "parity.test"',
        hayate='SERVER_NAME = ".*"',
    ),
    Accepted(
        "server/host",
        "status",
        "what is not plainly a host and a port is refused; nginx passes it on to whoever believes HTTP_HOST",
        reference="200 OK",
        hayate="400 Bad Request",
        here=not OWN_HOST,
    ),
    *[
        Accepted(
            case,
            "body",
            "HTTP_HOST is the header as it was sent, as with nginx before 1.30",
            reference='HTTP_HOST = "parity.test(:<server port>)?"',
            hayate='HTTP_HOST = (?i:"parity.test[.]?:?(8080)?"|NULL)',
            here=OWN_HOST,
        )
        for case in ("server/host", "server/uri")
    ],
    Accepted(
        "server/bare_lf",
        "status",
        "a bare line feed is a way to smuggle requests; nginx takes it for a line end",
        reference="200 OK",
        hayate="400 Bad Request",
    ),
    Accepted(
        "server/uri",
        "body",
        "the host of an absolute target replaces the Host header (RFC 9112, 3.2.2); nginx passes both on",
        request="absolute form, another host",
        reference='HTTP_HOST = "parity.test"',
        hayate='HTTP_HOST = "other.test:8080"',
        here=not OWN_HOST,
    ),
    Accepted(
        "server/method",
        "header:allow",
        "405 names the methods that are allowed (RFC 9110, 15.5.6)",
        request="TRACE",
        hayate="GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
    ),
    Accepted("server/method", "reason", PHRASES, request="TRACE", reference="Not Allowed", hayate="Method Not Allowed"),
    # --- static files and directories
    Accepted("routing/redirect", "header:location", RELATIVE, hayate="/[^/].*"),
    Accepted("front/directories", "header:location", RELATIVE, request="GET /sub", hayate="/sub/"),
    Accepted(
        "routing/static",
        "header:content-type",
        "the registered type of scripts (RFC 9239)",
        reference="application/javascript",
        hayate="text/javascript",
    ),
    Accepted(
        "routing/ranges", "header:accept-ranges", "said of every static file, whatever the status", hayate="bytes"
    ),
    Accepted("routing/ranges", "header:etag", "said of every static file, whatever the status", hayate='".*"'),
    Accepted(
        "routing/ranges", "header:last-modified", "said of every static file, whatever the status", hayate=".* GMT"
    ),
    Accepted("routing/ranges", "reason", PHRASES, request="all beyond the end", hayate="Range Not Satisfiable"),
    Accepted(
        "routing/ranges",
        "status",
        "a Range that is malformed is ignored (RFC 9110, 14.2)",
        reference="416 .*",
        hayate="200 OK",
    ),
    Accepted("routing/static_methods", "reason", PHRASES, reference="Not Allowed", hayate="Method Not Allowed"),
    Accepted(
        "routing/static_methods",
        "header:allow",
        "405 has to name what is allowed (RFC 9110, 15.5.6)",
        hayate="GET, HEAD",
    ),
    Accepted("routing/empty", "status", HIDDEN, reference="403 Forbidden", hayate="404 Not Found"),
    Accepted("routing/dotfiles", "status", HIDDEN, reference="403 Forbidden", hayate="404 Not Found"),
    Accepted("front/dotfiles", "status", HIDDEN, reference="403 Forbidden", hayate="404 Not Found"),
    Accepted("routing/uploads", "status", HIDDEN, reference="403 Forbidden", hayate="404 Not Found"),
    Accepted("routing/odd_paths", "status", HIDDEN, reference="403 Forbidden", hayate="404 Not Found"),
    Accepted("routing/sources", "status", SOURCE, reference="200 OK", hayate="404 Not Found"),
    Accepted("routing/upper_case", "status", SOURCE, reference="200 OK", hayate="404 Not Found"),
    Accepted(
        "routing/dir.php",
        "status",
        "a directory is a directory, whatever its name ends with; the usual configuration of nginx never looks into it",
        reference="404 Not Found",
        hayate="200 OK|301 Moved Permanently",
    ),
    Accepted(
        "front/directories",
        "status",
        "a directory without an index goes to the front controller, as any path that names no file",
        request="GET /assets/",
        reference="403 Forbidden",
        hayate="200 OK",
    ),
    Accepted(
        "front/files",
        "status",
        "what follows a script in the path is the script's: WebDAV has .git and .DS_Store. Where nginx asks for .php first, as Debian has it, so it is there",
        request="GET /other.php/.git/config",
        reference="403 Forbidden",
        hayate="200 OK",
    ),
    Accepted(
        "front/directories",
        "status",
        "the same without a slash: the front controller may redirect to that name, so nobody is sent from it",
        request="GET /assets",
        reference="301 Moved Permanently",
        hayate="200 OK",
    ),
]
_KNOWN += [
    # --- over TLS, over HTTP/2
    Accepted(
        "*",
        "body",
        "what nginx tells PHP of TLS when its configuration says so, Hayate tells always (docs/tls.md)",
        hayate=r".*\bSSL_(CIPHER|CLIENT_VERIFY|PROTOCOL|SERVER_NAME|SESSION_REUSED)\b.*",
        over=(TLS, H2),
    ),
    Accepted("headers/no_body", "header:content-type", NO_TYPE, hayate="text/html; charset=UTF-8", over=(H2,)),
    Accepted("headers/cors", "header:content-type", NO_TYPE, hayate="text/html; charset=UTF-8", over=(H2,)),
    Accepted(
        "headers/impossible_code",
        "status",
        STANDARD_CODE,
        reference="0 |502 Bad Gateway",
        hayate="500 Internal Server Error",
        over=(H2,),
    ),
    Accepted(
        "headers/length",
        "status",
        "an answer that is shorter than its length says is cut off: over HTTP/2 by a reset, before which its head need not be read",
        reference="200 OK",
        hayate="0 ",
        over=(H2,),
    ),
    Accepted("server/query", "status", URI_OF_H2, request='GET ?q="<>"', reference="200 OK", hayate="0 ", over=(H2,)),
    Accepted("server/uri", "body", "a fragment is not sent by any client, and is cut off over HTTP/2", request="*#fragment", over=(H2,)),
    Accepted("server/host", "status", URI_OF_H2, hayate="400 Bad Request|0 ", over=(H2,)),
]

ACCEPTED = [entry for entry in _KNOWN if entry.here]
