<?php

declare(strict_types=1);

/**
 * @var Windbook\View $this
 * @var Windbook\Entry $entry
 */
?>
<div class="narrow">
    <?= $this->insert('entry', ['entry' => $entry]) ?>
    <p><a href="<?= $this->url('/') ?>">← Back to the book</a></p>
</div>
