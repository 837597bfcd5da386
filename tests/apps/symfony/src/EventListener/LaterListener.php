<?php

declare(strict_types=1);

namespace App\EventListener;

use App\Signals;
use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpKernel\Event\TerminateEvent;
use Symfony\Component\HttpKernel\KernelEvents;

/** Works after the answer, when a request asked for it. */
final class LaterListener implements EventSubscriberInterface
{
    public function __construct(private Signals $signals)
    {
    }

    public static function getSubscribedEvents(): array
    {
        return [KernelEvents::TERMINATE => 'onTerminate'];
    }

    public function onTerminate(TerminateEvent $event): void
    {
        $name = $event->getRequest()->attributes->get('later');
        if (null !== $name) {
            $this->signals->wait($name);
            $this->signals->done($name);
        }
    }
}
