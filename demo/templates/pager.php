<?php

declare(strict_types=1);

/**
 * @var Windbook\View $this
 * @var int $page
 * @var int $pages
 */

// The first, the last and the present page with its neighbours; a gap stands for the rest.
$shown = array_values(array_filter(
    range(1, $pages),
    static fn (int $number): bool => $number === 1 || $number === $pages || abs($number - $page) <= 1,
));
$previous = 0;
?>
<nav class="pager" aria-label="Pages">
    <?php if ($page > 1): ?><a href="<?= $this->url('/?page=' . $page - 1) ?>" rel="prev">Newer</a><?php endif ?>
    <ol>
        <?php foreach ($shown as $number): ?>
        <?php if ($number > $previous + 1): ?><li class="gap" aria-hidden="true">…</li><?php endif ?>
        <li><a href="<?= $this->url("/?page=$number") ?>"<?= $number === $page ? ' aria-current="page"' : '' ?> aria-label="Page <?= $number ?>"><?= $number ?></a></li>
        <?php $previous = $number ?>
        <?php endforeach ?>
    </ol>
    <?php if ($page < $pages): ?><a href="<?= $this->url('/?page=' . $page + 1) ?>" rel="next">Older</a><?php endif ?>
</nav>
