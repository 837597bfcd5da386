<?php

declare(strict_types=1);

namespace Windbook;

/** Turns templates and data into HTML. Templates see their data as variables, and this object as $this. */
final class View
{
    /** @param string $base the path the application is mounted at, without a slash at its end */
    public function __construct(
        private readonly string $templates,
        private readonly string $base,
        private readonly Engine $engine,
    ) {
    }

    /**
     * A whole page: the template inside the layout.
     *
     * @param array<string, mixed> $data with at least 'title'
     */
    public function page(string $template, array $data): string
    {
        $content = $this->insert($template, $data);

        return $this->insert('layout', [
            'title' => $data['title'],
            'flash' => $data['flash'] ?? null,
            'content' => $content,
            'engine' => $this->engine,
        ]);
    }

    /** @param array<string, mixed> $data */
    public function insert(string $template, array $data): string
    {
        ob_start();
        try {
            (function (string $__file, array $__data): void {
                extract($__data, EXTR_SKIP);
                require $__file;
            })("$this->templates/$template.php", $data);
        } catch (\Throwable $error) {
            ob_end_clean();
            throw $error;
        }

        return (string) ob_get_clean();
    }

    /** Text made safe for HTML, inside and outside of attributes. */
    public function e(string|int|float|null $text): string
    {
        return htmlspecialchars((string) $text, ENT_QUOTES | ENT_SUBSTITUTE | ENT_HTML5, 'UTF-8');
    }

    /** An address within the application, ready for an attribute. */
    public function url(string $path): string
    {
        return $this->e($this->base . $path);
    }

    /** How long ago, as one would say it; beyond a week the date. */
    public function ago(\DateTimeImmutable $moment): string
    {
        $seconds = time() - $moment->getTimestamp();
        $said = static fn (int $count, string $unit): string => "$count $unit" . ($count === 1 ? '' : 's') . ' ago';

        return match (true) {
            $seconds < 60 => 'just now',
            $seconds < 3600 => $said(intdiv($seconds, 60), 'minute'),
            $seconds < 86400 => $said(intdiv($seconds, 3600), 'hour'),
            $seconds < 7 * 86400 => $said(intdiv($seconds, 86400), 'day'),
            default => $moment->format('j M Y'),
        };
    }
}
