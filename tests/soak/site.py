"""What the soak serves: a classic application and a rewound one, each with scripts that behave well and badly."""

from __future__ import annotations

import pathlib
import shutil

from lib.servers import REWIND_WORKER

SCRIPTS = {
    "ok.php": "<?php echo 'ok ', $_GET['id'];",
    "work.php": "<?php for ($i = 0, $h = ''; $i < 2000; $i++) { $h = hash('sha256', $h . $i); } echo $h;",
    "sleep.php": "<?php usleep(1000 * (int) $_GET['ms']); echo 'slept';",
    "large.php": "<?php $block = str_repeat('0123456789abcdef', 4096); for ($i = 0; $i < (int) $_GET['n']; $i++) { echo $block; }",
    "flush.php": "<?php for ($i = 0; $i < 5; $i++) { echo str_repeat('x', 3000); flush(); usleep(2000); }",
    "echo.php": "<?php $in = fopen('php://input', 'rb'); header('Content-Type: application/octet-stream'); fpassthru($in);",
    "form.php": "<?php echo strlen($_POST['a'] ?? ''), ' ', count($_FILES);",
    "error.php": "<?php http_response_code(500); error_log('an error of the soak'); echo 'error';",
    "exception.php": "<?php throw new RuntimeException('of the soak');",
    "memory.php": "<?php ini_set('memory_limit', '32M'); $x = []; while (true) { $x[] = str_repeat('x', 1 << 20); }",
    "eat.php": "<?php ini_set('memory_limit', '-1'); for ($i = 0; $i < 64; $i++) { $x[] = str_repeat('x', 1 << 20); usleep(5000); } echo 'full';",
    "exit.php": "<?php echo 'before'; exit(3);",
    "crash.php": "<?php posix_kill(getmypid(), 9);",
    "crash_late.php": "<?php echo str_repeat('x', 300000); flush(); posix_kill(getmypid(), 9);",
    "session.php": "<?php session_id('soak' . ((int) $_GET['id'] % 7)); session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo 'counted';",
    "log.php": "<?php for ($i = 0; $i < 50; $i++) { error_log(str_repeat('a line of the soak ', 5)); } echo 'logged';",
    "finish.php": "<?php echo 'answer'; fastcgi_finish_request(); usleep(20000);",
    "small.txt": "small\n" * 10,
}


def make(directory: pathlib.Path) -> pathlib.Path:
    """Writes it below `directory`; returns the document root of both applications."""
    root = directory / "site"
    root.mkdir()
    for name, text in SCRIPTS.items():
        (root / name).write_text(text)
    (root / "large.bin").write_bytes(b"0123456789abcdef" * 65536)
    shutil.copy(REWIND_WORKER, root / "worker.php")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


def config(root: pathlib.Path, listen: int, log: pathlib.Path) -> str:
    """A hayate.toml: the classic application below /classic, the rewound one below /rewound."""
    top = f'listen = "127.0.0.1:{listen}"\naccess_log = "{log}"\naccess_log_format = "json"\ndrain_timeout = "20s"\n'
    app = (
        '\n[[app]]\nname = "{name}"\nroot = "{root}"\ndocument_root = "."\npath = "/{name}"\nworkers = "2-4"\n'
        'request_timeout = "10s"\nqueue_limit = 2000\nqueue_timeout = "30s"\n{more}'
    )
    classic = app.format(name="classic", root=root, more='front_controller = ""\n')
    rewound = app.format(name="rewound", root=root, more='worker = "worker.php"\nfront_controller = ""\nwarmup = []\n')
    return top + classic + rewound
