<?php
final class Release
{
    public const NAME = 'RELEASE';

    public static function later(): string
    {
        return require __DIR__ . '/later.php';
    }
}
