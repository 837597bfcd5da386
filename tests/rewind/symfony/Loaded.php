<?php

declare(strict_types=1);

namespace App\EventListener;

use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\HttpKernel\KernelEvents;

/** Says which of the classes that a request names were loaded when it began, and what of the cache it loads. */
final class Loaded implements EventSubscriberInterface
{
    /** @var list<string> */
    private array $loaded = [];
    /** @var list<string> */
    private array $files = [];

    public static function getSubscribedEvents(): array
    {
        return [KernelEvents::REQUEST => ['onRequest', 4096], KernelEvents::RESPONSE => ['onResponse', -4096]];
    }

    public function onRequest(RequestEvent $event): void
    {
        $asked = explode(' ', $event->getRequest()->headers->get('X-Ask', ''));
        $this->loaded = array_intersect($asked, self::asks('get_declared_classes'));
        $this->files = self::asks('get_included_files');
    }

    private static function asks(string $function): array
    {
        return (require \dirname(__DIR__, 2).'/vendor/acme/asks.php')($function);
    }

    public function onResponse(ResponseEvent $event): void
    {
        $files = preg_grep('~/var/cache/.*(Service|/twig/.*)\.php$~', array_diff(self::asks('get_included_files'), $this->files));
        $event->getResponse()->headers->add(['X-Loaded' => implode(' ', $this->loaded)]);
        // What warm-up spares differs before and after it.
        if (!isset($_SERVER['HAYATE_COMPARISON'])) {
            $event->getResponse()->headers->add(['X-Files' => implode(' ', array_map('basename', $files))]);
        }
    }
}
