<?php

declare(strict_types=1);

namespace App\Controller;

use App\Registry;
use App\Told;
use Psr\Cache\CacheItemPoolInterface;
use Psr\Log\LoggerInterface;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Mailer\MailerInterface;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Mime\Email;
use Symfony\Contracts\Cache\ItemInterface;
use Symfony\Contracts\Cache\TagAwareCacheInterface;
use Symfony\Contracts\EventDispatcher\EventDispatcherInterface;
use Symfony\Contracts\HttpClient\HttpClientInterface;

/** Hands in with the services that the framework configures: messages, mails, locks, requests, caches, the database, logs, the kernel's end. */
final class HandsInAll
{
    private array $held = [];

    public function __construct(
        private MessageBusInterface $bus,
        private MailerInterface $mailer,
        private LockFactory $locks,
        private LockFactory $redisLockFactory,
        private HttpClientInterface $client,
        private CacheItemPoolInterface $cacheApp,
        private TagAwareCacheInterface $taggedPool,
        private CacheItemPoolInterface $redisPool,
        private CacheItemPoolInterface $databasePool,
        private Registry $doctrine,
        private LoggerInterface $keptLog,
        private EventDispatcherInterface $dispatcher,
        private LoggerInterface $logger,
    ) {
    }

    public function __invoke(Request $request): JsonResponse
    {
        $v = $request->query->get('visitor', 'Warm');
        $out = (string) $_SERVER['OUT'];
        $this->bus->dispatch(new Told("of $v"));
        $this->mailer->send((new Email())->from('a@example.org')->to('b@example.org')->subject("symfony_mailer of $v")->text('text'));
        $this->client->request('GET', "http://127.0.0.1:{$_SERVER['HTTP']}/symfony_http?of+$v");
        $got = [];
        foreach (['flock' => $this->locks, 'redis' => $this->redisLockFactory] as $name => $factory) {
            $this->held[$name] = $factory->createLock("only-$name", 300);
            $got[] = $acquired = $this->held[$name]->acquire();
            $acquired && file_put_contents("$out/symfony_lock_$name.log", "of $v\n", \FILE_APPEND);
        }
        foreach ([$this->cacheApp, $this->redisPool, $this->databasePool] as $pool) {
            $got[] = $pool->saveDeferred($pool->getItem("of-$v")->set($v));
        }
        $this->taggedPool->get("of-$v", static function (ItemInterface $item) use ($v, &$got) {
            $item->tag('names');
            $got[] = 'computed';

            return $v;
        });
        $this->dispatcher->addListener(KernelEvents::TERMINATE, static fn () => file_put_contents("$out/symfony_terminate.log", "of $v\n", \FILE_APPEND));
        $this->logger->info("of $v");
        $this->keptLog->info("of $v");
        $database = $this->doctrine->getConnection();
        $database->insert('arrivals', ['name' => "of $v"]);
        $database->transactional(static fn () => $database->insert('arrivals', ['name' => "of $v"]));
        // What the session of a connection keeps, and nobody after her finds.
        $got[] = $database->fetchOne('SELECT @visitor');
        $got[] = $database->fetchOne("SELECT GET_LOCK('only', 0)");
        $database->executeStatement('SET @visitor = ?', [$v]);
        $got[] = $request->getSession()->get('n', 0);
        $request->getSession()->set('n', $request->getSession()->get('n', 0) + 1);

        return new JsonResponse($got);
    }

    /** What a worker on the command line has done with messages. */
    public function workedOff(): JsonResponse
    {
        return new JsonResponse($this->doctrine->getConnection()->fetchFirstColumn("SELECT name FROM arrivals WHERE name LIKE 'worked off%' ORDER BY id"));
    }

    public function arrived(Request $request): JsonResponse
    {
        $visitors = explode(',', $request->query->get('visitors', ''));
        $has = static fn (CacheItemPoolInterface $pool): array => array_values(array_filter($visitors, static fn (string $v) => $pool->hasItem("of-$v")));

        return new JsonResponse(['app' => $has($this->cacheApp), 'tagged' => $has($this->taggedPool), 'redis' => $has($this->redisPool), 'database' => $has($this->databasePool)]);
    }
}
