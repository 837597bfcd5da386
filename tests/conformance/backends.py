"""The two ways a test is run: php-cgi, one process for each test (the baseline), and a web server over HTTP: php-fpm
behind nginx here, Hayate in hayate.py.

Both take the same request, ini settings and environment, and give back the same kind of response. A server is started
for one set of ini settings and environment, and serves every test that wants exactly these.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import http.client
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import urllib.parse
from collections.abc import Mapping

from lib.servers import PHP_VERSION, NginxFpm, Server, ServerError

from .phpt import Request, Response

#: Seconds after which a test counts as hanging.
TIMEOUT = 30.0
#: Bytes of an answer that are read; a test that writes more has run wild.
LARGEST_ANSWER = 64 << 20

#: PHP code that includes the test in a function, and its name in a copy of the tree.
WORKER = pathlib.Path(__file__).with_name("worker.php")
WORKER_NAME = "conformance_worker.php"

Settings = Mapping[str, str]


class Setting(tuple):
    """A set of ini settings and environment variables that one server can serve: hashable, sortable."""

    __slots__ = ()

    def __new__(cls, ini: Settings, env: Settings):
        return super().__new__(cls, (tuple(sorted(ini.items())), tuple(sorted(env.items()))))

    def ini(self, tree: pathlib.Path) -> dict[str, str]:
        """The ini settings, for a copy of the tree."""
        return {key: value.replace("{TREE}", str(tree)) for key, value in self[0]}

    def env(self, tree: pathlib.Path) -> dict[str, str]:
        """The environment variables, for a copy of the tree."""
        return {key: value.replace("{TREE}", str(tree)) for key, value in self[1]}


def php_environment(tree: pathlib.Path, ini: Settings, env: Settings) -> dict[str, str]:
    """The whole environment PHP sees: the one run-tests.php gives, on top of a bare one."""
    arguments = " ".join(f'-d "{key}={value}"' for key, value in ini.items() if '"' not in value)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "TEMP": tempfile.gettempdir(),
        "TMPDIR": tempfile.gettempdir(),
        "TZ": "",
        "NO_INTERACTION": "1",
        "XDEBUG_MODE": "off",
        "SKIP_ONLINE_TESTS": "1",
        "TEST_PHP_SRCDIR": str(tree),
        "TEST_PHP_EXECUTABLE": f"/usr/bin/php{PHP_VERSION}",
        "TEST_PHP_CGI_EXECUTABLE": f"/usr/bin/php-cgi{PHP_VERSION}",
        "TEST_PHP_EXTRA_ARGS": arguments,
        **env,
    }


def ini_arguments(ini: Settings) -> list[str]:
    """`-d key=value` for every setting."""
    return [argument for key, value in ini.items() for argument in ("-d", f"{key}={value}")]


def within_open_basedir(ini: Settings, file: pathlib.Path) -> Settings:
    """The settings, with the file among what open_basedir allows, if that restricts anything."""
    allowed = ini.get("open_basedir")
    return {**ini, "open_basedir": f"{allowed}:{file}"} if allowed else ini


def without_addition(body: bytes, file: pathlib.Path) -> bytes:
    """An answer without what within_open_basedir() added to the paths that a warning names."""
    return body.replace(f":{file})".encode(), b")")


def run_process(command: list[str], env: Settings, cwd: pathlib.Path, stdin: bytes = b"") -> tuple[bytes, str]:
    """(standard output, "" or why it is incomplete) of a process group that may live for TIMEOUT.

    Output goes to a file, so that a background process that a test left behind cannot hold the pipe open.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            command,
            stdin=given,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        broken = ""
        try:
            if (status := process.wait(TIMEOUT)) < 0:
                broken = f"ended by signal {-status}"
        except subprocess.TimeoutExpired:
            broken = f"no end within {TIMEOUT:.0f} s"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return output.read(LARGEST_ANSWER), broken


class Backend:
    """Runs requests for scripts of one copy of the tree."""

    #: How often each test is run in the same process, to see whether later runs go as the first did.
    runs = 1
    #: Whether a function of a worker script includes the test, so that it has no global scope.
    in_function = False

    def __init__(self, tree: pathlib.Path) -> None:
        self.tree = tree
        #: What went wrong with the server itself: (test, what happened).
        self.events: list[tuple[str, str]] = []
        #: Tests after which a process was replaced, by cause.
        self.replaced: dict[str, list[str]] = collections.defaultdict(list)

    def prepare(self, script: str, setting: Setting) -> None:
        """Called before the first run of each test."""

    def run(self, script: str, setting: Setting, request: Request) -> Response:
        """Runs the script at this path below the tree."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends what is still running."""


class PhpCgi(Backend):
    """php-cgi as a web server starts it for a CGI request; `in_function`: the test is included by a function."""

    def __init__(self, tree: pathlib.Path, in_function: bool = False) -> None:
        super().__init__(tree)
        self.in_function = in_function

    def run(self, script: str, setting: Setting, request: Request) -> Response:
        ini, path = setting.ini(self.tree), str(self.tree / script)
        url = urllib.parse.quote(f"/{script}")
        env = {
            **php_environment(self.tree, ini, setting.env(self.tree)),
            "REDIRECT_STATUS": "200",
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_SOFTWARE": "conformance",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "SERVER_NAME": "localhost",
            "SERVER_ADDR": "127.0.0.1",
            "SERVER_PORT": "80",
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_PORT": "50000",
            "DOCUMENT_ROOT": str(self.tree),
            "SCRIPT_FILENAME": path,
            "SCRIPT_NAME": f"/{script}",
            "REQUEST_METHOD": request.method,
            "REQUEST_URI": f"{url}?{request.query}" if request.query else url,
            "QUERY_STRING": request.query,
            "HTTP_HOST": "localhost",
        }
        for name, value in request.headers:
            key = name.upper().replace("-", "_")
            env[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
        if self.in_function:
            worker = shutil.copyfile(WORKER, self.tree / WORKER_NAME)
            ini = {**within_open_basedir(ini, worker), "auto_prepend_file": str(worker)}
        command = [f"/usr/bin/php-cgi{PHP_VERSION}", *ini_arguments(ini)]
        output, broken = run_process(command, env, self.tree, request.body)
        if self.in_function:
            output = without_addition(output, self.tree / WORKER_NAME)
        return self._response(output, broken)

    @staticmethod
    def _response(output: bytes, broken: str) -> Response:
        head, blank, body = output.partition(b"\r\n\r\n")
        if not blank:
            return Response(0, "", body=output, broken=broken or "no header")
        response = Response(200, "OK", body=body, broken=broken)
        for line in head.decode("latin-1").split("\r\n"):
            name, _, value = line.partition(":")
            if name.lower() == "status":
                code, _, reason = value.strip().partition(" ")
                response.status, response.reason = int(code), reason
            else:
                response.headers.append((name.strip(), value.strip()))
        return response


class Http(Backend):
    """A web server with one PHP process, restarted for each set of settings. Subclasses say which server."""

    #: A second run meets what a process keeps, above all the script in OPcache.
    runs = 2

    def __init__(self, tree: pathlib.Path) -> None:
        super().__init__(tree)
        #: The one that runs.
        self.server: Server | None = None
        self._setting: Setting | None = None
        self._refused: ServerError | None = None

    def make(self, ini: Settings, env: Settings) -> Server:
        """A server for the tree, not yet started."""
        raise NotImplementedError

    def run(self, script: str, setting: Setting, request: Request) -> Response:
        self.serve(script, setting)
        if self.server is None:
            return Response(0, "", broken=f"the server did not start: {self._refused}")
        response = self.exchange(script, request)
        ended = self.server.process is not None and self.server.process.poll() is not None
        if ended or response.status == 0:
            self._event(script, "the server ended" if ended else response.broken)
            self.close(kill=True)
        return response

    def _event(self, script: str, what: str) -> None:
        self.events.append((script, what))

    def serve(self, script: str, setting: Setting) -> None:
        """Makes sure that a server with these settings runs, for the sake of a script."""
        if setting != self._setting:
            self._start(script, setting)

    def _start(self, script: str, setting: Setting) -> None:
        self.close()
        self._setting, self._refused = setting, None
        ini, env = setting.ini(self.tree), setting.env(self.tree)
        server = self.make(ini, php_environment(self.tree, ini, env))
        try:
            self.server = server.start()
        except (ServerError, OSError) as error:
            self._refused = error if isinstance(error, ServerError) else ServerError(str(error))
            self._event(script, f"the server did not start: {str(error)[-2000:]}")
            server.remove()

    def exchange(self, script: str, request: Request) -> Response:
        """One request to the server that runs."""
        port = urllib.parse.urlsplit(self.server.url).port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        url = urllib.parse.quote(f"/{script}") + (f"?{request.query}" if request.query else "")
        try:
            connection.putrequest(request.method, url, skip_host=True, skip_accept_encoding=True)
            for name, value in (("Host", "localhost"), *request.headers):
                connection.putheader(name, value.encode("utf-8", "surrogateescape"))
            connection.endheaders(request.body or None)
            answer = connection.getresponse()
            response = Response(answer.status, answer.reason, answer.getheaders())
            try:
                response.body = answer.read(LARGEST_ANSWER)
            except http.client.IncompleteRead as error:
                response.body, response.broken = error.partial, "the answer is cut off"
            return response
        except TimeoutError:
            return Response(0, "", broken=f"no answer within {TIMEOUT:.0f} s")
        except (OSError, http.client.HTTPException) as error:
            return Response(0, "", broken=f"no answer: {error!r}")
        finally:
            connection.close()

    def close(self, kill: bool = False) -> None:
        """Stops the server; a hang or a process left behind becomes an event, and costs no test."""
        server, setting = self.server, self._setting
        self.server = self._setting = None
        if server is None:
            return
        try:
            server.kill() if kill else server.stop()
        except ServerError as error:
            self._event(f"after {dict(setting[0]) if setting else ''}", str(error)[-2000:])
            server.kill()
        server.remove()


class PhpFpm(Http):
    """nginx and php-fpm: tells what fails behind any web server from what fails behind Hayate alone."""

    def make(self, ini: Settings, env: Settings) -> Server:
        server = NginxFpm(self.tree, ini=ini, fpm={"clear_env": "no", "chdir": self.tree}, workers=1)
        server.fpm.spawn = functools.partial(server.fpm.spawn, env)
        return server
