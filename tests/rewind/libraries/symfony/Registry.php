<?php

declare(strict_types=1);

namespace App;

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Doctrine\Persistence\ConnectionRegistry;

/** What DoctrineBundle, of which Debian 12 has no package, calls "doctrine", as far as connections go. */
final class Registry implements ConnectionRegistry
{
    private ?Connection $connection = null;

    public function getDefaultConnectionName(): string
    {
        return 'default';
    }

    public function getConnection($name = null): Connection
    {
        return $this->connection ??= DriverManager::getConnection([
            'driver' => 'pdo_mysql',
            'unix_socket' => $_SERVER['MARIADB'],
            'user' => 'hayate',
            'password' => 'hayate',
            'dbname' => 'hayate',
            'charset' => 'utf8mb4',
        ]);
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
