<?php
require_once __DIR__ . '/../show.php';
show('mail', @mail('a@parity.test', 'subject', 'body', ['From' => 'b@parity.test']));
show('sendmail_path', ini_get('sendmail_path'));
