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
    <p class="lead">This application booted once and has stayed in memory. Reload: the number of requests grows, while the boot stays where it was.</p>
    <?php else: ?>
    <p class="lead">This application booted for your request and will be gone after it. Start the server with <code>--worker public/worker.php</code> to see it stay.</p>
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
