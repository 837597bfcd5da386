<?php
require_once __DIR__ . '/../show.php';
show('level', ob_get_level());
show('status', ob_get_status(true));
