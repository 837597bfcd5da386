<?php

declare(strict_types=1);

namespace App;

/**
 * What the environment says of the experiment, read for each request: Laravel's configuration is cached when the application is built.
 *
 * - BLOG_EAGER (1): relations of all posts in one query each; 0: a query for each post and relation
 * - BLOG_LIMIT (1): the database returns 20 posts; 0: it returns all, and PHP takes 20
 * - BLOG_CASTS (0): 1: times become objects
 * - BLOG_CACHE (empty): where the list is kept: `apcu`, `file` (an array that a file returns), `class` (a constant, to be preloaded)
 */
final class Setting
{
    public static function get(string $name): string
    {
        $value = getenv($name);

        return $value !== false ? $value : (string) ($_SERVER[$name] ?? '');
    }

    public static function on(string $name): bool
    {
        return self::get($name) === '1';
    }
}
