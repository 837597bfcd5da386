<?php

declare(strict_types=1);

/**
 * @var Windbook\View $this
 * @var string $title
 * @var string|null $flash
 * @var string $content HTML
 * @var Windbook\Engine $engine
 */
?>
<!doctype html>
<html lang="en">
<head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <meta name="description" content="A guest book for windy places, served by Hayate.">
    <title><?= $this->e($title === 'Windbook' ? 'Windbook, a guest book for windy places' : "$title · Windbook") ?></title>
    <link rel="icon" href="<?= $this->url('/assets/logo.svg') ?>" type="image/svg+xml">
    <link rel="stylesheet" href="<?= $this->url('/assets/style.css') ?>">
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="sky">
    <svg class="wind" viewBox="0 0 900 420" preserveAspectRatio="xMaxYMid slice" aria-hidden="true" focusable="false">
        <path d="M-20 120C160 92 330 150 520 128c98-11 196-26 196-76 0-50-76-58-82-6"/>
        <path d="M-20 176c220-34 420 38 620 12s240-66 240-16-70 44-62 4"/>
        <path d="M-20 226c260-20 520 18 940-22"/>
        <path d="M60 276c200-16 330 22 470 8 112-11 190 16 186 72s-86 52-80 4"/>
        <path d="M140 332c120-8 200 16 290 10 62-4 96 14 94 44s-48 30-46 2"/>
    </svg>
    <div class="bar">
        <a class="brand" href="<?= $this->url('/') ?>">
            <img src="<?= $this->url('/assets/logo.svg') ?>" width="40" height="40" alt="">
            <span>Windbook</span>
        </a>
        <nav aria-label="Main">
            <a href="<?= $this->url('/') ?>">The book</a>
            <a href="<?= $this->url('/engine') ?>">Engine room</a>
        </nav>
    </div>
    <?php if ($title === 'Windbook'): ?>
    <div class="hero">
        <h1>Which wind brought&nbsp;you here?</h1>
        <p>A guest book for windy places. Say who you are, where you stand, and what the air is doing there.</p>
        <a class="button" href="#sign">Sign the book</a>
    </div>
    <?php else: ?>
    <div class="hero small">
        <h1><?= $this->e($title) ?></h1>
    </div>
    <?php endif ?>
    <svg class="swell" viewBox="0 0 1440 60" preserveAspectRatio="none" aria-hidden="true" focusable="false">
        <path d="M0 38c180-34 340-34 540-10s330 30 520 2 260-24 380-4v34H0z"/>
    </svg>
</header>
<main id="content">
    <?php if ($flash !== null): ?>
    <p class="flash" role="status"><?= $this->e($flash) ?></p>
    <?php endif ?>
    <?= $content ?>
</main>
<footer>
    <?php if ($engine->isHayate()): ?>
    <p>Served by <strong>Hayate</strong> <span lang="ja">疾風</span>, the gale among PHP servers.</p>
    <?php else: ?>
    <p>Not served by Hayate yet: try <code>hayate serve demo</code></p>
    <?php endif ?>
    <dl class="gauges">
        <div><dt>mode</dt><dd><?= $this->e($engine->mode->value) ?></dd></div>
        <div><dt>SAPI</dt><dd><?= $this->e(PHP_SAPI) ?></dd></div>
        <div><dt>process</dt><dd><?= $this->e(getmypid()) ?></dd></div>
        <div><dt>request</dt><dd><?= $this->e(number_format($engine->requests())) ?> <span>since boot</span></dd></div>
        <div><dt>time</dt><dd><?= $this->e(number_format($engine->elapsed(), 2)) ?> <span>ms</span></dd></div>
    </dl>
</footer>
</body>
</html>
