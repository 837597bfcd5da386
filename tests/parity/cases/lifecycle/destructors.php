<?php
$make = static fn (string $name) => new class($name) {
    public function __construct(private string $name)
    {
    }

    public function __destruct()
    {
        echo "destroyed {$this->name}\n";
        header("X-Destroyed-{$this->name}: 1");
    }
};
$first = $make('first');
$second = $make('second');
$cycle = $make('cycle');
$cycle->self = $cycle;
unset($second);
register_shutdown_function(static fn () => print "shutdown\n");
echo "end of script\n";
