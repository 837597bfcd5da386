<?php

/** What the worker scripts of this directory serve. It counts in memory, and notes in a file what is over. */

final class Application
{
    private int $handled = 0;

    public function handle(array $query): string
    {
        if (isset($query['fail'])) {
            throw new RuntimeException('as asked');
        }
        if (isset($query['exit'])) {
            exit('left');
        }

        return json_encode([
            'handled' => ++$this->handled,
            'method' => $_SERVER['REQUEST_METHOD'],
            'mode' => $_SERVER['APP_RUNTIME_MODE'] ?? null,
            'given' => $_SERVER['GIVEN'] ?? null,
            'query' => $query,
            'pid' => getmypid(),
        ]);
    }

    /** After the answer. */
    public function terminate(array $query): void
    {
        $this->note('terminated '.($query['n'] ?? 'none'));
    }

    public function shutdown(): void
    {
        $this->note('shut down');
    }

    private function note(string $what): void
    {
        file_put_contents(__DIR__.'/notes', $what."\n", FILE_APPEND | LOCK_EX);
    }
}
