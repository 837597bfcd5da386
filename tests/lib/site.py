"""The small document root that the http, pool and security themes share: scripts that behave well and badly on request."""

from __future__ import annotations

import pathlib

SCRIPTS = {
    "ok.php": """<?php header('Content-Type: text/plain'); echo 'ok ', $_SERVER['QUERY_STRING'];""",
    "pid.php": """<?php echo getmypid();""",
    "sleep.php": """<?php usleep((int)($_GET['ms'] ?? 100) * 1000); echo getmypid();""",
    "spin.php": """<?php set_time_limit(0); while (true) { hash('sha256', 'x'); }""",
    "crash.php": """<?php if (!empty($_GET['say'])) { echo str_repeat('x', 200000); flush(); } posix_kill(getmypid(), 9);""",
    # Dies at the first attempt only, so that a second one can succeed.
    "crash_once.php": """<?php $f = $_GET['file']; if (!file_exists($f)) { touch($f); posix_kill(getmypid(), 9); } echo 'second';""",
    "sleep_and_crash.php": """<?php usleep((int)$_GET['ms'] * 1000); posix_kill(getmypid(), 9);""",
    # Counts its runs, and dies in each.
    "crash_counted.php": """<?php file_put_contents($_GET['file'], 'x', FILE_APPEND); posix_kill(getmypid(), 9);""",
    "echo.php": """<?php header('Content-Type: application/octet-stream'); $in = fopen('php://input', 'rb');
        header('X-Length: ' . ($_SERVER['CONTENT_LENGTH'] ?? '')); fpassthru($in);""",
    "count.php": """<?php $n = 0; $in = fopen('php://input', 'rb'); while (!feof($in)) { $n += strlen(fread($in, 65536)); } echo $n;""",
    "large.php": """<?php $block = str_repeat('0123456789abcdef', 4096); for ($i = (int)$_GET['mb'] * 16; $i > 0; $i--) { echo $block; }""",
    "flush.php": """<?php header('Content-Type: text/plain'); while (ob_get_level()) { ob_end_flush(); } echo "first\\n"; flush();
        while (isset($_GET['go']) && !file_exists($_GET['go'])) { usleep(2000); clearstatcache(); } usleep(50000); echo "second\\n";""",
    # Goes on when there is a file.
    "hold.php": """<?php set_time_limit(0); while (!file_exists($_GET['go'])) { usleep(2000); clearstatcache(); } echo 'held';""",
    "finish.php": """<?php echo 'answer'; fastcgi_finish_request(); while (!file_exists($_GET['go'])) { usleep(2000); clearstatcache(); }
        file_put_contents($_GET['file'], 'after');""",
    "abort.php": """<?php ignore_user_abort(true); for ($i = 0; $i < 100 && !connection_aborted(); $i++) { echo str_repeat('x', 5000); flush(); usleep(20000); }
        file_put_contents($_GET['file'], connection_aborted() ? 'aborted' : 'not aborted');""",
    "leak.php": """<?php ini_set('memory_limit', '512M'); $GLOBALS['leak'] = str_repeat('x', 64 << 20); echo strlen($GLOBALS['leak']);""",
    "inject.php": """<?php header("X-A: b\\r\\nX-Injected: yes"); header("X-B: c\\nX-Injected: yes"); echo 'x';""",
    "sendfile.php": """<?php header('X-Sendfile: ' . __DIR__ . '/plain.txt'); header('Content-Type: text/x-own');""",
    "accel.php": """<?php header('X-Accel-Redirect: /plain.txt');""",
    "accel_hints.php": """<?php header('X-Accel-Buffering: no'); header('X-Accel-Expires: 10'); echo 'x';""",
    "accel_out.php": """<?php header('X-Accel-Redirect: /../secret.txt');""",
    "sendfile_out.php": """<?php header('X-Sendfile: /etc/passwd');""",
    "server.php": """<?php header('Content-Type: application/json'); echo json_encode($_SERVER);""",
    "fds.php": """<?php foreach (scandir('/proc/self/fd') as $fd) { if ($fd[0] !== '.') { echo $fd, ' ', @readlink("/proc/self/fd/$fd"), "\\n"; } }""",
    "privileges.php": """<?php echo preg_grep('/NoNewPrivs/', file('/proc/self/status'))[array_key_first(preg_grep('/NoNewPrivs/', file('/proc/self/status')))], posix_geteuid();""",
    "error.php": """<?php trigger_error('a warning of mine', E_USER_WARNING); error_log('a line of mine'); echo 'x';""",
    "uploads/evil.jpg": """<?php echo 'executed';""",
    ".hidden.php": """<?php echo 'hidden';""",
    ".env": "SECRET=1",
    ".git/config": "[core]",
    ".well-known/acme": "token",
    "inc.phtml": """<?php echo 'source';""",
    "old.php~": """<?php echo 'source';""",
    "plain.txt": "plain text of thirty-two letters",
    "index.html": "<h1>index</h1>",
    "sub/index.php": """<?php echo 'sub index ', $_SERVER['PATH_INFO'] ?? '';""",
    "style.css": "body { color: black; }" * 100,
}


def make(directory: pathlib.Path) -> pathlib.Path:
    """Writes the document root below `directory` and returns it; a file of secrets lies beside it."""
    root = directory / "site"
    for name, text in SCRIPTS.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (directory / "secret.txt").write_text("secret")
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root
