<?php

declare(strict_types=1);

/**
 * @var Windbook\View $this
 * @var Windbook\Entry $entry
 */
?>
<article class="entry" id="entry-<?= $this->e($entry->id) ?>" aria-labelledby="name-<?= $this->e($entry->id) ?>">
    <header>
        <?= $this->insert('barb', ['wind' => $entry->wind]) ?>
        <div>
            <h3 id="name-<?= $this->e($entry->id) ?>"><?= $this->e($entry->name) ?></h3>
            <p>
                <?php if ($entry->place !== ''): ?><span class="place"><?= $this->e($entry->place) ?></span><?php endif ?>
                <span class="force"><?= $this->e($entry->wind->label()) ?>, <abbr title="Beaufort">Bft</abbr> <?= $this->e($entry->wind->value) ?></span>
            </p>
        </div>
        <a class="when" href="<?= $this->url("/entries/$entry->id") ?>">
            <time datetime="<?= $this->e($entry->writtenAt->format(DATE_RFC3339)) ?>"><?= $this->e($this->ago($entry->writtenAt)) ?></time>
        </a>
    </header>
    <div class="message"><?= nl2br($this->e($entry->message), false) ?></div>
    <?php if ($entry->photoId !== null): ?>
    <a class="photo" href="<?= $this->url("/photos/$entry->photoId") ?>">
        <img src="<?= $this->url("/photos/$entry->photoId") ?>" width="<?= $this->e($entry->photoWidth) ?>" height="<?= $this->e($entry->photoHeight) ?>" alt="Picture by <?= $this->e($entry->name) ?>" loading="lazy">
    </a>
    <?php endif ?>
</article>
