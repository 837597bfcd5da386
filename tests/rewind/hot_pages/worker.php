<?php
/* A boot of 100,000 objects; most requests need none of them, ?all walks over all (and so writes their reference counts). */
declare(strict_types=1);

final class Item
{
    public function __construct(public readonly int $number, public readonly string $name)
    {
    }
}

$items = [];
for ($n = 0; $n < 100_000; $n++) {
    $items[] = new Item($n, "item $n");
}

$handler = static function () use ($items): void {
    $sum = 0;
    if (isset($_GET['all'])) {
        foreach ($items as $item) {
            $sum += $item->number;
        }
    }
    echo $sum;
};

while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
