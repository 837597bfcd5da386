<?php

function included_function(): string
{
    static $times = 0;
    return 'included ' . ++$times;
}

class Included_Class
{
    public static int $loaded = 0;
}
Included_Class::$loaded++;

return Included_Class::$loaded;
