<?php

declare(strict_types=1);

/**
 * @var Windbook\View $this
 * @var string $token
 * @var list<Windbook\Entry> $entries
 * @var int $count
 * @var int $page
 * @var int $pages
 * @var Windbook\Draft $draft
 * @var array<string, string> $errors
 */
?>
<div class="columns">
    <section aria-labelledby="entries-title">
        <h2 id="entries-title">
            <?= $this->e(number_format($count)) ?> <?= $count === 1 ? 'entry' : 'entries' ?>
            <?php if ($page > 1): ?><span>page <?= $this->e($page) ?> of <?= $this->e($pages) ?></span><?php endif ?>
        </h2>
        <div class="entries">
            <?php foreach ($entries as $entry): ?>
            <?= $this->insert('entry', ['entry' => $entry]) ?>
            <?php endforeach ?>
        </div>
        <?= $pages > 1 ? $this->insert('pager', ['page' => $page, 'pages' => $pages]) : '' ?>
    </section>
    <section class="sign" id="sign" aria-labelledby="sign-title">
        <?= $this->insert('form', ['token' => $token, 'draft' => $draft, 'errors' => $errors]) ?>
    </section>
</div>
