<?php

/** In place of the one that Composer would make. */

declare(strict_types=1);

require_once '/usr/share/php/Slim/autoload.php';
