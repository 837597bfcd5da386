<?php
echo "before\n";
if (isset($_GET['catch'])) {
    try {
        include __DIR__ . '/_broken.php';
    } catch (ParseError $error) {
        echo 'caught ', $error->getMessage(), ' in ', basename($error->getFile()), ':', $error->getLine(), "\n";
    }
    try {
        eval('also broken');
    } catch (ParseError $error) {
        echo 'caught ', $error->getMessage(), "\n";
    }
    return;
}
include __DIR__ . '/_broken.php';
