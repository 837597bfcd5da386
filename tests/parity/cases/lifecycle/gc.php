<?php
require_once __DIR__ . '/../show.php';
show('enabled', gc_enabled());
for ($number = 0; $number < 200; $number++) {
    $object = new stdClass();
    $object->self = $object;
}
show('collected', gc_collect_cycles() > 100);
$reference = WeakReference::create($object);
unset($object);
gc_collect_cycles();
show('weak', $reference->get());
