<?php
/*
 * Includes what a request names, so that OPcache gets scripts to cache while workers are rewound.
 *
 *   /?file=NAME     includes NAME.php from SCRIPTS and says what it returns
 *   /?reset         opcache_reset()
 *   /?status        what OPcache says of itself, as JSON
 *   /?release       the release of the worker, of a class from another file, and of a file included now
 */
declare(strict_types=1);

require __DIR__ . '/release.php';

$scripts = (string) getenv('SCRIPTS');
$handler = static function () use ($scripts): void {
    if (isset($_GET['file'])) {
        echo include "$scripts/{$_GET['file']}.php";
    } elseif (isset($_GET['reset'])) {
        echo opcache_reset() ? 'reset' : 'refused';
    } elseif (isset($_GET['status'])) {
        echo json_encode(opcache_get_status(false));
    } else {
        echo getmypid(), ' ', Release::NAME, ' ', (include __DIR__ . '/part.php'), ' ', Release::later();
    }
};

while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
