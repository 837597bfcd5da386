<?php
$names = array_filter([...get_declared_classes(), ...get_declared_interfaces()], static fn ($name) => (new ReflectionClass($name))->isInternal());
sort($names);
echo implode("\n", $names), "\n";
