<?php

declare(strict_types=1);

use Windbook\Mode;

/**
 * @var Windbook\View $this
 * @var Mode $mode
 * @var array<string, string> $facts
 */
?>
<div class="narrow">
    <?php if ($mode === Mode::Worker): ?>
    <p class="lead">This application booted once, at the time below. After each request Hayate puts the process back to that moment, so the number of requests stays what it was after the warm-up; with <code>--rewind off</code> it would grow.</p>
    <?php else: ?>
    <p class="lead">This application booted for your request and will be gone after it. Start the server with <code>--worker public/worker.php</code> to see it boot only once.</p>
    <?php endif ?>
    <dl class="facts">
        <?php foreach ($facts as $label => $value): ?>
        <div><dt><?= $this->e($label) ?></dt><dd><?= $this->e($value) ?></dd></div>
        <?php endforeach ?>
    </dl>
    <p class="actions">
        <a class="button" href="<?= $this->url('/engine') ?>">Again</a>
        <a class="button quiet" href="<?= $this->url('/engine/fail') ?>">Throw an exception</a>
    </p>
</div>
