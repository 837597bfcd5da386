<?php

declare(strict_types=1);

namespace Windbook;

/**
 * The SQLite file, made and filled with a few entries when it is first used.
 *
 * The connection opens with the first query and never earlier: a worker is forked from a process that has booted this
 * application, and SQLite forbids carrying a connection across a fork.
 */
final class Database
{
    private const VERSION = 1;

    private ?\PDO $connection = null;

    /** @param string $file absolute path; its directory is made when absent */
    public function __construct(private readonly string $file)
    {
    }

    /** @param array<string, int|string|null> $parameters */
    public function query(string $sql, array $parameters = []): \PDOStatement
    {
        $statement = $this->connection()->prepare($sql);
        foreach ($parameters as $name => $value) {
            $statement->bindValue($name, $value, match (true) {
                is_int($value) => \PDO::PARAM_INT,
                $value === null => \PDO::PARAM_NULL,
                default => \PDO::PARAM_STR,
            });
        }
        $statement->execute();

        return $statement;
    }

    /** The next query opens it again. */
    public function close(): void
    {
        $this->connection = null;
    }

    public function lastInsertId(): int
    {
        return (int) $this->connection()->lastInsertId();
    }

    /**
     * All that $work writes is kept, or nothing when it throws.
     *
     * @template T
     * @param callable(): T $work
     * @return T
     */
    public function transaction(callable $work): mixed
    {
        // IMMEDIATE takes the write lock now, where SQLite waits for it, instead of at the first write, where it may give up.
        $this->connection()->exec('BEGIN IMMEDIATE');
        try {
            $result = $work();
            $this->connection()->exec('COMMIT');
        } catch (\Throwable $error) {
            $this->connection()->exec('ROLLBACK');
            throw $error;
        }

        return $result;
    }

    private function connection(): \PDO
    {
        return $this->connection ??= $this->open();
    }

    private function open(): \PDO
    {
        $directory = dirname($this->file);
        if (!is_dir($directory) && !@mkdir($directory, 0700, true) && !is_dir($directory)) {
            throw new \RuntimeException("Cannot make $directory: let PHP's user write there, or set DEMO_DATABASE to another file.");
        }
        $connection = new \PDO("sqlite:$this->file", options: [
            \PDO::ATTR_TIMEOUT => 5,
            \PDO::ATTR_DEFAULT_FETCH_MODE => \PDO::FETCH_ASSOC,
        ]);
        $connection->exec('PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL');
        if ((int) $connection->query('PRAGMA user_version')->fetchColumn() < self::VERSION) {
            $this->create($connection);
        }

        return $connection;
    }

    /** Several workers may meet an empty file at once: the lock lets one of them fill it. */
    private function create(\PDO $connection): void
    {
        $lock = fopen("$this->file.lock", 'c') ?: throw new \RuntimeException("Cannot write $this->file.lock.");
        flock($lock, LOCK_EX);
        try {
            if ((int) $connection->query('PRAGMA user_version')->fetchColumn() < self::VERSION) {
                // Readers and the writer do not wait for each other. Kept in the file; cannot be set inside a transaction.
                $connection->exec('PRAGMA journal_mode = WAL');
                $connection->beginTransaction();
                $connection->exec(self::SCHEMA);
                Seed::fill($connection);
                $connection->exec('PRAGMA user_version = ' . self::VERSION);
                $connection->commit();
            }
        } finally {
            fclose($lock);
        }
    }

    private const SCHEMA = <<<'SQL'
        CREATE TABLE photos (
            id     INTEGER PRIMARY KEY,
            type   TEXT    NOT NULL,
            width  INTEGER NOT NULL,
            height INTEGER NOT NULL,
            bytes  BLOB    NOT NULL
        ) STRICT;
        CREATE TABLE entries (
            id         INTEGER PRIMARY KEY,
            name       TEXT    NOT NULL,
            place      TEXT    NOT NULL,
            wind       INTEGER NOT NULL CHECK (wind BETWEEN 0 AND 12),
            message    TEXT    NOT NULL,
            photo_id   INTEGER REFERENCES photos (id),
            written_at INTEGER NOT NULL -- seconds since 1970, UTC
        ) STRICT;
        CREATE INDEX entries_by_time ON entries (written_at DESC, id DESC);
        SQL;
}
