<!doctype html>
<title><?php echo 'é' ?></title>
<?php if (true): ?>
    <p>alternative syntax</p>
<?php endif ?>
<?php foreach ([1, 2] as $item): ?>
    <li><?= $item ?></li>
<?php endforeach ?>

the end, without a line end
