<?php
header('Set-Cookie: a=1; Path=/');
header('Set-Cookie: b=2', false);
setcookie('c', '3');
header('Set-Cookie: d=4', false);
if (isset($_GET['replace'])) {
    header('Set-Cookie: only=1');
}
header('Link: </a.css>; rel=preload', false);
header('Link: </b.js>; rel=preload', false);
header('Vary: Accept', false);
header('Vary: Cookie', false);
header('WWW-Authenticate: Basic realm="a"', false);
header('WWW-Authenticate: Digest realm="b"', false);
