<?php
require_once __DIR__ . '/../show.php';
session_start();
touch(session_save_path() . '/sess_parityold', 1);
show('exists', file_exists(session_save_path() . '/sess_parityold'));
show('gc', session_gc() >= 1);
show('gone', file_exists(session_save_path() . '/sess_parityold'));
show('create_id', strlen(session_create_id('prefix-')));
session_destroy();
