<?php
/*
 * Draws the UUIDs of Symfony that have a time and a node in them, a line for each: its name and what came. The boot draws as well, so that what
 * the classes and libuuid keep is in the snapshot.
 */
declare(strict_types=1);

use Symfony\Component\Uid\UuidV1;
use Symfony\Component\Uid\UuidV6;

require 'Symfony/Component/Uid/autoload.php';

$private = getenv('PRIVATE_BOOT') ? stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) : null;
$draw = static fn(): array => [new UuidV1(), new UuidV6(), UuidV1::generate(), UuidV6::generate()];
$draw();

while (hayate_handle_request(static function () use ($draw): void {
    [$v1, $v6, $generated_v1, $generated_v6] = $draw();
    echo "v1 $v1\nv1 $generated_v1\nv6 $v6\nv6 $generated_v6\npid ", getmypid(), "\n";
})) {
    /* Rewinding takes place in that call. */
}
