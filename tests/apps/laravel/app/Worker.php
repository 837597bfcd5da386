<?php

declare(strict_types=1);

namespace App;

use Closure;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Database\DatabaseManager;
use Illuminate\Foundation\Application;
use Illuminate\Foundation\Bootstrap\HandleExceptions;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;
use Throwable;

/**
 * A booted application that answers many requests.
 *
 * Boots once and remembers the container as it then is. After each request the container is put back: bindings, instances,
 * callbacks and the locale are those of the boot, the configuration is a fresh copy of the boot's, and every service that a
 * request was the first to ask for (session, guards, cookies, views, translator) is made anew for the next one. Database
 * connections stay open, without a transaction.
 *
 * Not undone: static properties of classes, listeners and routes that a request adds, and what else a request changes in an
 * object that the boot has made. A service provider that resolves `auth`, `session` or `view` in boot() makes it one of those.
 */
final class Worker
{
    private Kernel $kernel;

    private HandleExceptions $errors;

    /** @var array<string, mixed> the container's properties after the boot */
    private array $booted;

    public function __construct(private Application $app)
    {
        // Service providers may ask for a request while they boot; it stays bound, so that what they make learns of the next one.
        $app->instance('request', Request::create('http://localhost'));
        // Laravel's error handlers: kept, for the end of a request is not the end of the script that they wait for.
        $app->instance(HandleExceptions::class, $this->errors = new HandleExceptions());
        $this->kernel = $app->make(Kernel::class);
        $this->kernel->bootstrap();
        $this->booted = Closure::bind(fn (): array => get_object_vars($this), $app, Application::class)();
        $this->reset();
    }

    /** Answers the request of the superglobals. */
    public function handle(): void
    {
        register_shutdown_function($this->errors->handleShutdown(...));
        $request = Request::capture();
        $response = $this->kernel->handle($request)->send();
        $this->kernel->terminate($request, $response);
    }

    /** Forgets the last request; it may have ended anywhere, by exit() too. */
    public function reset(): void
    {
        $booted = $this->booted;
        Closure::bind(function () use ($booted): void {
            foreach ($booted as $property => $value) {
                $this->{$property} = $value;
            }
        }, $this->app, Application::class)();
        $this->app->instance('config', clone $this->app['config']);
        Facade::clearResolvedInstances();
        $this->leaveTransactions($this->app['db']);
        // A route keeps the controller that it has called, and with it what was injected there.
        $this->app['router']->current()?->flushController();
    }

    private function leaveTransactions(DatabaseManager $database): void
    {
        foreach ($database->getConnections() as $connection) {
            try {
                $connection->rollBack(0);
            } catch (Throwable) {
                // The server has gone away, and the transaction with it.
                $connection->disconnect();
            }
            $connection->forgetRecordModificationState();
        }
    }
}
