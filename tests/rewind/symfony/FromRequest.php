<?php

declare(strict_types=1);

namespace App\EventListener;

use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\HttpKernel\EventListener\ResponseListener;
use Symfony\Component\HttpKernel\KernelEvents;

/** Its constructor looks for the request and the time, as no service should and many do. */
final class FromRequest implements EventSubscriberInterface
{
    private string $host;
    private float $made;
    private array $before;

    public function __construct(RequestStack $requests)
    {
        $this->host = $requests->getMainRequest()?->getHost() ?? 'nobody';
        $this->made = microtime(true);
    }

    public static function getSubscribedEvents(): array
    {
        return [KernelEvents::REQUEST => ['onRequest', 4096], KernelEvents::RESPONSE => 'onResponse'];
    }

    /** Before any other listener: which of them there are already. */
    public function onRequest(RequestEvent $event, string $name, EventDispatcher $dispatcher): void
    {
        if (getenv('LATE_LISTENER')) {
            $dispatcher->addListener(KernelEvents::RESPONSE, [new ResponseListener('UTF-8'), 'onKernelResponse'], 7);
        }
        $all = \Closure::bind(fn () => $this->listeners, $dispatcher, EventDispatcher::class)();
        array_walk_recursive($all, function ($listener): void {
            if (\is_object($listener) && !$listener instanceof \Closure && $this !== $listener) {
                $this->before[] = \get_class($listener);
            }
        });
    }

    public function onResponse(ResponseEvent $event): void
    {
        $event->getResponse()->headers->add([
            'X-Host' => $this->host,
            'X-Made-Ms-Ago' => round(1000 * (microtime(true) - $this->made)),
            // What there is before shows whether there was a warm-up, and no visitor of a real application sees that.
            'X-Before' => isset($_SERVER['HAYATE_COMPARISON']) ? '' : implode(' ', array_unique($this->before ?? [])),
        ]);
    }
}
