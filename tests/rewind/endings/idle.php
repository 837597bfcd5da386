<?php
/* php-fpm's only process takes this request once it has ended the one before. */
echo 'idle';
