<?php
$object = new class {
    public function __destruct()
    {
        throw new Exception('in a destructor');
    }
};
echo "body\n";
