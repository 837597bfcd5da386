<?php
require_once __DIR__ . '/../show.php';
$headers = ['colon' => 'No colon at all', 'empty' => '', 'space' => 'X Space In Name: 1', 'only' => ': no name',
    'nul_name' => "X-N\0ul: 1", 'utf8_name' => 'X-Ünï: 1'];
@header($headers[$_GET['which']]);
show('list', headers_list());
