<?php
echo "before\n";
if (isset($_GET['redeclare'])) {
    eval('function parity_twice() {}');
    eval('function parity_twice() {}');
}
eval('class ParityAbstract { abstract function f(); }');
