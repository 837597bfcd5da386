<?php

declare(strict_types=1);

namespace Windbook;

/** One HTTP request, read once from PHP's superglobals and unchanged from then on. */
final class Request
{
    /**
     * @param string $method  in upper case
     * @param string $base    the path the application is mounted at, without a slash at its end: '' or '/demo'
     * @param string $path    the decoded path below $base, with a slash at its start
     * @param array<string, mixed> $query
     * @param array<string, mixed> $form
     * @param array<string, mixed> $files   as in $_FILES
     * @param array<string, mixed> $server  as in $_SERVER
     */
    private function __construct(
        public readonly string $method,
        public readonly string $base,
        public readonly string $path,
        private readonly array $query,
        private readonly array $form,
        private readonly array $files,
        private readonly array $server,
    ) {
    }

    public static function fromGlobals(): self
    {
        $path = rawurldecode(explode('?', (string) $_SERVER['REQUEST_URI'], 2)[0]);
        $script = (string) $_SERVER['SCRIPT_NAME'];
        $base = str_ends_with($script, '.php') ? rtrim(dirname($script), '/') : '';
        if ($base !== '' && !str_starts_with($path, $base . '/')) {
            $base = '';
        }

        return new self(
            method: strtoupper((string) $_SERVER['REQUEST_METHOD']),
            base: $base,
            path: '/' . ltrim(substr($path, strlen($base)), '/'),
            query: $_GET,
            form: $_POST,
            files: $_FILES,
            server: $_SERVER,
        );
    }

    /** GET or HEAD; the server leaves out the body of an answer to HEAD. */
    public function isRead(): bool
    {
        return $this->method === 'GET' || $this->method === 'HEAD';
    }

    public function isSecure(): bool
    {
        return ($this->server['HTTPS'] ?? '') !== '' && $this->server['HTTPS'] !== 'off';
    }

    /** A number of the query string, at least 1; 1 when absent, null when it is something else. */
    public function pageNumber(): ?int
    {
        $number = filter_var($this->query['page'] ?? '1', FILTER_VALIDATE_INT, ['options' => ['min_range' => 1]]);

        return $number === false ? null : $number;
    }

    /** A field of the submitted form; '' when absent or not a plain text field. */
    public function field(string $name): string
    {
        $value = $this->form[$name] ?? '';

        return is_string($value) ? $value : '';
    }

    /** @return array{tmp_name: string, error: int, size: int}|null the uploaded file, null when none was chosen */
    public function file(string $name): ?array
    {
        $file = $this->files[$name] ?? null;
        if (!is_array($file) || !is_int($file['error'] ?? null) || $file['error'] === UPLOAD_ERR_NO_FILE) {
            return null;
        }

        return ['tmp_name' => $file['tmp_name'], 'error' => $file['error'], 'size' => $file['size']];
    }

    /** PHP drops a form above post_max_size whole and without a word; this tells such a form from an empty one. */
    public function formWasDropped(): bool
    {
        return $this->method === 'POST' && $this->form === [] && $this->files === []
            && (int) ($this->server['CONTENT_LENGTH'] ?? 0) > 0;
    }

    public function ifNoneMatch(): string
    {
        return (string) ($this->server['HTTP_IF_NONE_MATCH'] ?? '');
    }
}
