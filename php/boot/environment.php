<?php

/**
 * Whether the environment was asked for a variable of a request before there is one, whoever asked: getenv(), and what
 * comes to it (env() of Laravel, Dotenv), with the name that it had as it ran.
 */

declare(strict_types=1);

namespace Hayate\Boot;

/*
 * For boot scripts that are in no name space: in this one PHP's functions are there where disable_functions names them (host/functions.c).
 */

function variable(string $name): string
{
    return (string) getenv($name);
}

function set_variable(string $variable): void
{
    putenv($variable);
}

function enter(string $directory): void
{
    chdir($directory);
}

/** @return array<string, string> settings that libpq takes from the environment */
function environment_of_libpq(): array
{
    return array_filter(getenv(null, true), static fn (string $name): bool => str_starts_with($name, 'PG'), \ARRAY_FILTER_USE_KEY);
}

/** @param string $known the end of a file's name whose questions are looked at elsewhere */
function look_at_all_environment(string $known = ''): void
{
    foreach (environment_asked() as [$name, $file, $line]) {
        $elsewhere = '' !== $known && str_ends_with($file, $known);
        if (!$elsewhere) {
            not_for_all("$file:$line looks at the request (environment variable $name) before there is a request, so once for all visitors. To avoid it: do it in a middleware");
        }
    }
}
