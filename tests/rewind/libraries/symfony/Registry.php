<?php

declare(strict_types=1);

namespace App;

use Doctrine\DBAL\Connection;
use Doctrine\Persistence\ConnectionRegistry;

/** What DoctrineBundle, of which Debian has no package, calls "doctrine", as far as connections go. */
final class Registry implements ConnectionRegistry
{
    public function __construct(private Connection $connection)
    {
    }

    public function getDefaultConnectionName(): string
    {
        return 'default';
    }

    public function getConnection($name = null): Connection
    {
        return $this->connection;
    }

    public function getConnections(): array
    {
        return ['default' => $this->getConnection()];
    }

    public function getConnectionNames(): array
    {
        return ['default' => 'database_connection'];
    }
}
