<?php
require_once __DIR__ . '/../show.php';
show('plain', setcookie('plain', 'value'));
setcookie('encoded', 'a b;c=d,é');
setrawcookie('raw', 'a%20b=c');
setcookie('all', 'v', ['expires' => 2000000000, 'path' => '/p', 'domain' => 'parity.test', 'secure' => true, 'httponly' => true, 'samesite' => 'Strict']);
setcookie('positional', 'v', 2000000000, '/p', '.parity.test', true, true);
setcookie('deleted', '');
setcookie('null', 'x', 1);
setcookie('same', 'one');
setcookie('same', 'two');
setcookie('array[key]', 'v');
setcookie('samesite', 'v', ['samesite' => 'None', 'secure' => true]);
foreach ([['', 'x'], ["a=b", 'x'], ["a b", 'x']] as [$name, $value]) {
    try {
        show("name $name", setcookie($name, $value));
    } catch (ValueError $error) {
        show("name $name", $error->getMessage());
    }
}
try {
    setrawcookie('bad', "a;b");
} catch (ValueError $error) {
    show('raw', $error->getMessage());
}
show('list', preg_grep('/^Set-Cookie: (?!deleted|null)/', headers_list()));
