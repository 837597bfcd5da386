<?php
/* The same without a loop: each request boots. */
require __DIR__ . '/worker.php';
