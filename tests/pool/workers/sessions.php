<?php
/* Made by the first request and met by those that follow, as Symfony's service of that name: it sets sessions up once. */

declare(strict_types=1);

final class Sessions implements SessionHandlerInterface
{
    public ?self $itself = null;

    public function __construct()
    {
        session_set_save_handler($this, false);
        ini_set('session.cache_limiter', '');
        session_name('VISITOR');
    }

    private function file(string $id): string
    {
        return __DIR__.'/kept-'.$id;
    }

    public function open(string $path, string $name): bool
    {
        return true;
    }

    public function close(): bool
    {
        return true;
    }

    public function read(string $id): string
    {
        return (string) @file_get_contents($this->file($id));
    }

    public function write(string $id, string $data): bool
    {
        return file_put_contents($this->file($id), $data) !== false;
    }

    public function destroy(string $id): bool
    {
        return !is_file($this->file($id)) || unlink($this->file($id));
    }

    public function gc(int $lifetime): int
    {
        return 0;
    }
}

final class Container
{
    private static ?Sessions $sessions = null;

    public static function sessions(): Sessions
    {
        return self::$sessions ??= new Sessions();
    }

    /** As a container that is made anew. */
    public static function renew(): void
    {
        self::$sessions = null;
    }
}

$handle = static function (): void {
    if (isset($_GET['apart'])) {
        // Another one, which nobody keeps.
        $apart = new Sessions();
        session_name('APART');
        ini_set('session.cookie_path', '/apart');
        session_start();
        echo session_name();

        return;
    }
    if (isset($_GET['circle'])) {
        // One that nobody keeps but itself, as of a container that is made for a request.
        $circle = new Sessions();
        $circle->itself = $circle;
        session_name('CIRCLE');
        session_start();
        echo session_name();

        return;
    }
    if (isset($_GET['renewed'])) {
        Container::renew();
        echo session_name(), ' ', ini_get('session.save_handler');

        return;
    }
    $sessions = Container::sessions();
    if (isset($_GET['again'])) {
        // As services do that say so in each request.
        session_set_save_handler($sessions, false);
        session_name('AGAIN');
        ini_set('session.cookie_lifetime', '77');
        echo session_name();

        return;
    }
    if (isset($_GET['settings'])) {
        echo session_name(), ' ', ini_get('session.save_handler'), ' ', ini_get('session.cookie_lifetime');

        return;
    }
    session_start();
    $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
    header('X-Path: '.ini_get('session.cookie_path'));
    echo session_name(), ' ', $_SESSION['visits'];
};
while (hayate_handle_request($handle)) {
}
