<?php
/* The finished page, through PHP. */

declare(strict_types=1);

readfile(__DIR__.'/blog.html');
