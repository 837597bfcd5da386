<?php

declare(strict_types=1);

namespace App\Controller;

use GuzzleHttp\Promise\Promise;
use Monolog\Handler\BufferHandler;
use Monolog\Handler\FingersCrossedHandler;
use Monolog\Handler\StreamHandler;
use Monolog\Logger;
use Symfony\Component\Cache\Adapter\FilesystemAdapter;
use Symfony\Component\Cache\Adapter\TagAwareAdapter;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/**
 * Leaves with libraries what they hand in when a script ends: log lines in a buffer, deferred items of a cache, a promise
 * that has been resolved. Warm-up requests do the same, so that all of it is in use before the first visitor.
 */
final class HandsIn
{
    public static ?self $it = null;
    private Logger $buffered;
    private Logger $crossed;
    private FilesystemAdapter $cache;
    private TagAwareAdapter $tagged;
    private string $out;

    public function __construct()
    {
        if (getenv('RESET')) {
            self::$it = $this;
        }
        $this->out = $out = (string) $_SERVER['OUT'];
        $this->buffered = new Logger('buffered', [new BufferHandler(new StreamHandler("$out/buffered.log"))]);
        $this->crossed = new Logger('crossed', [
            new FingersCrossedHandler(new StreamHandler("$out/crossed.log"), Logger::ERROR, 0, true, true, Logger::INFO),
        ]);
        $this->cache = new FilesystemAdapter('', 0, "$out/cache");
        $this->tagged = new TagAwareAdapter(new FilesystemAdapter('', 0, "$out/tagged"));
    }

    public function __invoke(Request $request): Response
    {
        $visitor = $request->query->get('visitor', 'warm-up');
        $out = $this->out;
        $this->buffered->info("of $visitor");
        $this->crossed->info("of $visitor");
        foreach (['cache' => $this->cache, 'tagged' => $this->tagged] as $name => $cache) {
            $cache->saveDeferred($cache->getItem("$name-$visitor")->set("of $visitor"));
        }
        $promise = new Promise();
        $promise->then(static fn (string $value) => file_put_contents("$out/promises.log", "$value\n", \FILE_APPEND));
        $promise->resolve("of $visitor");

        return new Response('thank you');
    }

    /** As Symfony resets services that are tagged kernel.reset; a controller's own are not. */
    public function reset(): void
    {
        $this->buffered->reset();
        $this->crossed->reset();
        $this->cache->reset();
        $this->tagged->reset();
    }

    /** What of it has arrived in the caches. */
    public function arrived(Request $request): Response
    {
        $found = [];
        foreach (['cache' => new FilesystemAdapter('', 0, "$this->out/cache"), 'tagged' => new TagAwareAdapter(new FilesystemAdapter('', 0, "$this->out/tagged"))] as $name => $cache) {
            foreach (explode(',', $request->query->get('visitors', '')) as $visitor) {
                $found[$name][$visitor] = $cache->getItem("$name-$visitor")->isHit();
            }
        }

        return new Response(json_encode($found));
    }
}
