<?php

declare(strict_types=1);

/**
 * @var Windbook\View $this
 * @var int $status
 * @var string $message
 */
?>
<div class="narrow">
    <p class="status" aria-hidden="true"><?= $this->e($status) ?></p>
    <p class="lead"><?= $this->e($message) ?></p>
    <p><a href="<?= $this->url('/') ?>">← Back to the book</a></p>
</div>
