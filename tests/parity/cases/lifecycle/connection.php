<?php
require_once __DIR__ . '/../show.php';
show('status', connection_status());
show('aborted', connection_aborted());
show('ignore', ignore_user_abort());
show('was', ignore_user_abort(true));
show('now', ignore_user_abort());
show('ini', ini_get('ignore_user_abort'));
