<?php

declare(strict_types=1);

/**
 * A wind barb, as on a weather map: the stronger the wind, the more feathers on the shaft.
 *
 * @var Windbook\View $this
 * @var Windbook\Beaufort $wind
 */

[$pennants, $long, $short] = $wind->feathers();
$y = 6;
?>
<svg class="barb" viewBox="0 0 48 48" aria-hidden="true" focusable="false">
    <circle class="station" cx="20" cy="39" r="4"/>
    <?php if ($wind === Windbook\Beaufort::Calm): ?>
    <circle cx="20" cy="39" r="7.5"/>
    <?php else: ?>
    <path d="M20 35V6"/>
    <?php for (; $pennants > 0; $pennants--, $y += 7): ?>
    <path class="pennant" d="M20 <?= $y ?>l14 -1l-14 6z"/>
    <?php endfor ?>
    <?php for (; $long > 0; $long--, $y += 5): ?>
    <path d="M20 <?= $y ?>l14 -4"/>
    <?php endfor ?>
    <?php if ($short > 0): ?>
    <path d="M20 <?= max($y, 11) ?>l8 -2.3"/>
    <?php endif ?>
    <?php endif ?>
</svg>
