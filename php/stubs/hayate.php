<?php

/**
 * What Hayate adds to PHP, for editors and static analysers. Never loaded by the server: the functions are built into it.
 *
 * PhpStorm: add this directory under Settings, PHP, Include Path. PHPStan: name this file under `scanFiles`.
 * Psalm: name it under `<stubs>`. Composer packages that want to run elsewhere too test with `function_exists()`.
 */

/**
 * Waits for the next request, answers it with the handler, and returns after the handler has.
 *
 * Call it in a loop from a worker script, which Hayate runs with `--worker FILE` or `worker = "FILE"`. What the script
 * did before the first call (autoloader, container, configuration) is kept; the handler runs once per request:
 *
 *     <?php
 *     require __DIR__ . '/../vendor/autoload.php';
 *
 *     $kernel = new App\Kernel();                  // once per worker
 *     $handler = static function () use ($kernel): void {
 *         $kernel->handle($_SERVER, $_GET, $_POST); // once per request
 *     };
 *
 *     while (hayate_handle_request($handler)) {
 *         gc_collect_cycles();                     // between requests: the visitor has the answer already
 *     }
 *
 *     $kernel->shutdown();                         // when the worker retires
 *
 * What follows in the loop delays nobody: the answer is complete when the handler returns, its shutdown functions have run
 * and its session is closed, and what is echoed afterwards goes nowhere. With rewinding the request's objects live until
 * the next call, which calls their destructors and puts the process back. (Where nothing follows, as in
 * `while (hayate_handle_request($handler)) {}`, destructors run before the answer is complete, as in PHP. A handler that
 * answers nothing, neither output nor status nor a header, leaves the answer to what follows, except with state kept.)
 *
 * For the handler each request is a new one: `$_SERVER`, `$_GET`, `$_POST`, `$_COOKIE`, `$_FILES`, `$_REQUEST`, `php://input`,
 * headers, output buffers, the session and the time limit start afresh, and what it echoes is the answer's body. With
 * rewinding, the default, all else is as it was at the first call, too. With `rewind = "off"` it stays: static properties,
 * globals, singletons, open connections. What ini_set() changes in the boot stays, what it changes in the handler ends
 * with the request.
 *
 * `exit()`, an uncaught exception or a fatal error in the handler end that request, not the service: the visitor gets an
 * answer (status 500 for an exception or a fatal error if no header was sent yet) and the log gets the message. After
 * `exit()` or an exception the loop goes on; a fatal error unwinds the script, and the process is put back, or with state
 * kept a new worker takes this one's place.
 *
 * In classic mode, where each request runs its script from the start, the first call runs the handler for the request that is there,
 * as if the script called it (what it has said before is the answer's, an exception may be caught, `exit()` ends the script), and
 * returns true; the next one returns false. So one script serves both modes, and, if it asks
 * `function_exists('hayate_handle_request')`, servers without this function.
 *
 * @param callable(): mixed $handler called without arguments, its result is ignored
 *
 * @return bool true after a request was answered: go on. False when the worker is to leave, because the server
 *              reloads, shrinks its pool or stops, or the worker has reached `max_requests` or `max_memory`: end the
 *              loop and let the script return. In classic mode from the second call on.
 *
 * @throws \Error when called from within a handler, or by opcache.preload
 */
function hayate_handle_request(callable $handler): bool
{
}

/**
 * The same as {@see hayate_handle_request()}, under the name that FrankenPHP gave it.
 *
 * Worker scripts written for FrankenPHP, Laravel Octane's driver for it and symfony/runtime's runner run unchanged.
 *
 * @param callable(): mixed $callback called without arguments, its result is ignored
 *
 * @return bool see {@see hayate_handle_request()}
 *
 * @throws \Error when called from within a handler, or by opcache.preload
 */
function frankenphp_handle_request(callable $callback): bool
{
}

/**
 * Says what each worker is to do after its fork, before its first request: open the connections that are to be kept.
 *
 * It runs with `connections = "warm"` and rewinding by `uffd` only; elsewhere (in classic mode, too) this call does nothing, and
 * requests open what they need: so the handler opens what is not open. What it did is there for each request of that worker.
 * Call this before the first {@see hayate_handle_request()}. Each call adds a step, 32 at most; they run in order. A step that opens
 * a connection which cannot be kept (TLS, for one) is left out until the next reload, and the log says why: so take one for each server.
 *
 *     hayate_on_worker_start(function () use ($app): void {
 *         $app->database()->query('SELECT 1');
 *     });
 *
 * When it throws, or calls `exit()`, workers serve without it for a while, and then one tries again.
 *
 * @param callable(): mixed $run called without arguments; an exception that it has caught and returns means that a part
 *                               is missing: the rest is kept, and another worker tries later
 *
 * @throws \Error when called after the first hayate_handle_request(), from within a handler, or too often
 */
function hayate_on_worker_start(callable $run): void
{
}

/**
 * Sends the answer as it stands to the visitor, completes it, and lets the script run on.
 *
 * For work that nobody should wait for: mail, statistics, caches. Output buffers are flushed first; what is echoed
 * afterwards goes nowhere, and headers can no longer be set. The worker takes its next request only when the script ends,
 * and `max_execution_time` and the pool's `request_timeout` keep counting, so long work belongs in a queue. Close the
 * session first (`session_write_close()`): its lock holds up the same visitor's next request.
 *
 *     echo json_encode($order);
 *     hayate_finish_request();
 *     $mailer->sendConfirmation($order);
 *
 * @return bool true when the answer was completed, false when it already had been
 */
function hayate_finish_request(): bool
{
}

/**
 * The same as {@see hayate_finish_request()}, under the name that php-fpm gave it.
 *
 * Symfony's and Laravel's responses call it by themselves.
 *
 * @return bool see {@see hayate_finish_request()}
 */
function fastcgi_finish_request(): bool
{
}

/**
 * Sends 103 Early Hints with these links at once, before the script has its answer.
 *
 * The browser fetches what the page will need while the script still works on it:
 *
 *     hayate_early_hints('</app.css>; rel=preload; as=style');
 *     hayate_early_hints(['</app.js>; rel=preload; as=script', '<https://cdn.example.org>; rel=preconnect']);
 *
 * Each string is the value of a `Link` header. The answer's own headers stay as they are: send the links there as well
 * (`header('Link: …', false)`), for clients that take no early hints. Clients of HTTP/2 get them; those of HTTP/1.1 with
 * `early_hints_http1 = true`; those of HTTP/1.0 never. One answer has 16 at most, of 16 KB together.
 *
 * @param list<string>|string $links
 *
 * @return bool true when they were handed to the server, whether or not this client gets them; false when the answer has begun, when
 *              there were too many, or when there are no links
 *
 * @throws \ValueError when a link holds control characters
 */
function hayate_early_hints(array|string $links): bool
{
}

/**
 * Sends the headers that are set so far with an informational status (102 to 199, 103 for early hints), and keeps them set
 * for the answer. With another status it sends the answer's head.
 *
 * FrankenPHP has the same function, and Symfony's `Response::sendHeaders(103)` and `AbstractController::sendEarlyHints()` use it where
 * it exists. Limits and clients as with {@see hayate_early_hints()}.
 *
 * @return int as PHP's own code has it: 1 when an informational status was handed to the server, 3 when that cannot be any more or
 *             there were too many; 0 for the answer's own head
 *
 * @throws \ValueError when the status is not between 100 and 999
 */
function headers_send(int $status = 200): int
{
}

/**
 * The request's header fields, spelled as PHP's other servers spell them (`Content-Type`, `X-Requested-With`).
 *
 * Fields that came more than once are joined by `, `.
 *
 * @return array<string, string> name => value
 */
function getallheaders(): array
{
}

/**
 * Another name for {@see getallheaders()}.
 *
 * @return array<string, string> name => value
 */
function apache_request_headers(): array
{
}

/**
 * The answer's header fields as set so far, `X-Powered-By` included.
 *
 * Of fields that were set more than once (such as `Set-Cookie`) the last one shows; {@see headers_list()} has them all.
 *
 * @return array<string, string> name => value
 */
function apache_response_headers(): array
{
}
