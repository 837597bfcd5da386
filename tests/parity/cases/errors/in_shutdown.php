<?php
echo "body\n";
match ($_GET['where']) {
    'shutdown' => register_shutdown_function(static fn () => throw new Exception('in shutdown')),
    'fatal_shutdown' => register_shutdown_function(static fn () => undefined_function_of_parity()),
    'callback' => ob_start(static fn ($text) => throw new Exception('in a callback')),
    'header_callback' => header_register_callback(static fn () => throw new Exception('in a header callback')),
    'session' => (static function () {
        session_set_save_handler(new class implements SessionHandlerInterface {
            public function open(string $path, string $name): bool { return true; }
            public function close(): bool { return true; }
            public function read(string $id): string|false { return ''; }
            public function write(string $id, string $data): bool { throw new Exception('in a session handler'); }
            public function destroy(string $id): bool { return true; }
            public function gc(int $lifetime): int|false { return 0; }
        }, true);
        session_id('parityparityparityparityparity');
        session_start();
    })(),
};
echo "more\n";
