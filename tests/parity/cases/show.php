<?php
/* Prints a value one line for each scalar in it, so that two outputs can be compared line by line, bytes and types and all. */
function show(string $label, mixed $value): void
{
    if (is_array($value) && $value !== []) {
        foreach ($value as $key => $item) {
            show($label . '[' . addcslashes((string) $key, "\0..\37\177..\377") . ']', $item);
        }
        return;
    }
    echo $label, ' = ', match (true) {
        is_string($value) => '"' . addcslashes($value, "\0..\37\177..\377") . '"',
        is_array($value) => '[]',
        is_object($value) => 'object ' . get_class($value),
        is_resource($value) => 'resource ' . get_resource_type($value),
        default => var_export($value, true),
    }, "\n";
}
