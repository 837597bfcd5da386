<?php

declare(strict_types=1);

namespace Windbook;

/**
 * The visitor's session: the token that protects forms, and messages that survive one redirect.
 *
 * One per request. The session file is locked only while it is read and written, so that a visitor's requests never
 * wait for each other.
 */
final class Session
{
    private ?string $token = null;

    /** @param string $directory where session files lie; made when absent, closed to others */
    public function __construct(private readonly string $directory, private readonly bool $secure)
    {
    }

    /** The secret that this visitor's forms carry. */
    public function token(): string
    {
        return $this->token ??= $this->locked(static fn (): string => $_SESSION['token'] ??= bin2hex(random_bytes(32)));
    }

    public function accepts(string $token): bool
    {
        return hash_equals($this->token(), $token);
    }

    /** Keeps a message for the next page this visitor sees. */
    public function flash(string $message): void
    {
        $this->locked(static fn () => $_SESSION['flash'] = $message);
    }

    /** The message kept for this page, and forgets it; null when there is none. */
    public function takeFlash(): ?string
    {
        if (!isset($_COOKIE[self::name()])) {
            return null;
        }

        return $this->locked(static function (): ?string {
            $message = $_SESSION['flash'] ?? null;
            unset($_SESSION['flash']);

            return $message;
        });
    }

    /**
     * @template T
     * @param callable(): T $work
     * @return T
     */
    private function locked(callable $work): mixed
    {
        if (!is_dir($this->directory) && !@mkdir($this->directory, 0700, true) && !is_dir($this->directory)) {
            throw new \RuntimeException("Cannot make $this->directory for sessions: let PHP's user write there.");
        }
        session_start([
            'name' => self::name(),
            'save_path' => $this->directory,
            'cache_limiter' => '',
            'gc_probability' => 1,
            'use_strict_mode' => true,
            'cookie_httponly' => true,
            'cookie_samesite' => 'Lax',
            'cookie_secure' => $this->secure,
        ]);
        try {
            return $work();
        } finally {
            session_write_close();
        }
    }

    private static function name(): string
    {
        return 'windbook';
    }
}
