<?php
require_once __DIR__ . '/../show.php';
show('before', getenv('PARITY_PUT'));
if (isset($_GET['put'])) {
    show('put', putenv('PARITY_PUT=' . $_GET['put']));
    show('after', getenv('PARITY_PUT'));
    show('child', trim((string) shell_exec('printenv PARITY_PUT')));
    show('timezone', putenv('TZ=Asia/Tokyo'));
    show('unset', [putenv('PARITY_PUT'), getenv('PARITY_PUT')]);
    putenv('PARITY_PUT=' . $_GET['put']);
}
