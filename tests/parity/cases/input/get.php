<?php
require_once __DIR__ . '/../show.php';
show('get', $_GET);
show('count', count($_GET, COUNT_RECURSIVE));
