<?php

declare(strict_types=1);

namespace Windbook;

/**
 * The guest book: boots once, then answers any number of requests.
 *
 * Everything that belongs to one visitor (request, session, view) is made in handle() and dropped at its end; what stays
 * between requests is only the engine's count and the database connection. That is all it takes to be a good worker.
 */
final class Application
{
    private const SECURITY_HEADERS = [
        'Content-Security-Policy' => "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        'Referrer-Policy' => 'same-origin',
        'X-Content-Type-Options' => 'nosniff',
    ];

    private function __construct(
        private readonly string $root,
        private readonly string $sessions,
        private readonly Database $database,
        private readonly GuestBook $book,
        private readonly Engine $engine,
    ) {
    }

    /**
     * @param string $root the demo's directory; the database is $root/var/windbook.sqlite unless the environment's
     *                     DEMO_DATABASE names another file (relative to $root), sessions lie beside it
     */
    public static function boot(string $root, Mode $mode): self
    {
        $engine = new Engine($mode);

        // A warning is a mistake: it ends the request with an error page instead of a page that is half right.
        set_error_handler(static function (int $level, string $message, string $file, int $line): bool {
            if ((error_reporting() & $level) === 0) {
                return false;
            }
            throw new \ErrorException($message, 0, $level, $file, $line);
        });

        $file = getenv('DEMO_DATABASE') ?: 'var/windbook.sqlite';
        if (!str_starts_with($file, '/')) {
            $file = "$root/$file";
        }

        $database = new Database($file);

        return new self($root, dirname($file) . '/sessions', $database, new GuestBook($database), $engine);
    }

    /** Lets go of what must not be part of a snapshot that processes share. */
    public function release(): void
    {
        $this->database->close();
    }

    /** Answers the request in PHP's superglobals. Throws nothing: whatever happens, the visitor gets a page. */
    public function handle(): void
    {
        $this->engine->startRequest();
        $request = Request::fromGlobals();
        $view = new View("$this->root/templates", $request->base, $this->engine);

        try {
            $session = new Session($this->sessions, $request->isSecure());
            $response = (new Pages($request, $session, $this->book, $view, $this->engine))->respond();
        } catch (HttpError $error) {
            $response = $this->errorPage($view, $error);
        } catch (\Throwable $error) {
            $id = bin2hex(random_bytes(4));
            error_log("windbook: error $id: $error");
            $response = $this->errorPage($view, new HttpError(500, "Something broke on our side. It is in the log as error $id."));
        }

        $response->with(self::SECURITY_HEADERS + [
            'Server-Timing' => sprintf('app;dur=%.2f', $this->engine->elapsed()),
        ])->send();
    }

    private function errorPage(View $view, HttpError $error): Response
    {
        $title = match ($error->status) {
            403 => 'That form has expired',
            404 => 'Gone with the wind',
            405 => 'Not that way',
            413 => 'Too heavy to lift',
            default => 'A sudden squall',
        };
        $page = $view->page('error', ['title' => $title, 'status' => $error->status, 'message' => $error->getMessage()]);

        return (new Response($page, $error->status))->with($error->headers);
    }
}
