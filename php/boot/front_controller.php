<?php

/**
 * Runs a project's own front controller up to the method that handles a request, once; the worker script for projects of
 * Slim, Lumen and Mezzio that `hayate serve` recognises. Where a framework has made something of the request before that
 * method, or boots in it, a script of its own (codeigniter.php, cakephp.php, yii.php, laminas.php) says what handles a
 * request, and includes this one.
 *
 * Hayate's host knows which method that is (host/front_controller.c): as its class is compiled, it gets a first statement
 * that calls requests_begin(). There the boot ends. Each request then calls the method anew, and relies on rewinding: what
 * one request leaves in the application, no other sees.
 *
 * No request is handled in a process that goes on. What warm-up requests load is loaded by its name.
 */

declare(strict_types=1);

namespace Hayate\Boot;

/** What .env and the front controller have added to the superglobals: it stays in them, as under php-fpm. */
final class Added
{
    /** @var array<string, array<string, mixed>> what the process was given */
    public static array $given = [];
    /** The project's directory, as PHP has the names of files. */
    public static string $project = '';

    public static function remember(): void
    {
        self::$given = ['server' => $_SERVER, 'env' => $_ENV];
        self::$project = \dirname((string) getcwd());
    }

    /** @return array{array<string, mixed>, array<string, mixed>} */
    public static function all(): array
    {
        return [array_diff_key($_SERVER, self::$given['server']), array_diff_key($_ENV, self::$given['env'])];
    }
}

/** Whether a file is the project's own: libraries ask for what they may be asked for, and PHP's own code is nobody's. */
function is_own(string $file): bool
{
    static $foreign = null;
    $foreign ??= [__DIR__.'/', realpath(Added::$project.'/vendor').'/'];

    return !str_starts_with($file, $foreign[0]) && !str_starts_with($file, $foreign[1]);
}

/**
 * Whether the project's own code has asked the environment for a variable of a request: by getenv(), or by the
 * framework's env(), which comes to it where nobody has set the variable.
 *
 * @param list<string> $but files of the project that are looked into otherwise
 */
function look_at_environment(array $but = []): void
{
    foreach (environment_asked() as [$name, $file, $line]) {
        if (is_own($file) && !\in_array($file, $but, true)) {
            not_for_all("$file:$line looks at the request (environment variable $name)");
        }
    }
}

/**
 * Whether one of these functions and methods has run.
 *
 * @param list<string> $functions
 */
function look_at_calls(array $functions): void
{
    foreach ($functions as $function) {
        if (was_called($function)) {
            not_for_all("what runs before there is a request looks at the request, at a session or at an answer, or draws (by $function()), and would do so once for all visitors");
        }
    }
}

/**
 * Called first by the method that handles a request. False: in a request, which it is to handle. True: the worker leaves.
 *
 * @param class-string $class     whose method it is; a class of the project's own that overrides it has called it
 * @param list<mixed>  $arguments those that the front controller gave it
 */
function requests_begin(object $app, string $class, string $method, array $arguments): bool
{
    static $handles = false;
    if ($handles) {
        return false;
    }
    $method = new \ReflectionMethod($class, $method);
    $handle = \function_exists(__NAMESPACE__.'\\prepare') ? prepare($app) : static function () use ($app, $method, $arguments): void {
        $method->invokeArgs($app, $arguments);
    };
    look_at_environment(\defined(__NAMESPACE__.'\\LOOKED_INTO') ? [Added::$project.'/'.LOOKED_INTO] : []);
    [$server, $env] = Added::all();
    // Written here, not in the handler: exit() ends that without its last statements.
    $handles = true;
    while (\hayate_handle_request(static function () use ($handle, $server, $env): void {
        $_SERVER += $server;
        $_ENV += $env;
        $handle();
    }));

    return true;
}

unset($_SERVER['HAYATE_PROJECT'], $_ENV['HAYATE_PROJECT'], $_SERVER['HAYATE_RUN'], $_ENV['HAYATE_RUN']);
// Where PHP would be if it ran the front controller, and what it would know of itself.
chdir(getenv('HAYATE_PROJECT').'/'.(\defined(__NAMESPACE__.'\\DOCUMENT_ROOT') ? DOCUMENT_ROOT : 'public'));
putenv('HAYATE_PROJECT');
putenv('HAYATE_RUN');
unset($_SERVER['argv'], $_SERVER['argc'], $GLOBALS['argv'], $GLOBALS['argc']);
$_SERVER['SCRIPT_FILENAME'] = getcwd().'/index.php';
Added::remember();

// In the global scope, as it expects to be.
require getcwd().'/index.php';
