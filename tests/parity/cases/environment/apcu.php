<?php
require_once __DIR__ . '/../show.php';
show('enabled', apcu_enabled());
if (isset($_GET['clear'])) {
    show('clear', apcu_clear_cache());
}
show('fetch', apcu_fetch('parity', $found));
show('found', $found);
show('increment', apcu_inc('parity-count'));
show('store', apcu_store('parity', ['pid' => 'any', 'list' => [1, 2.5, null, true]]));
show('add', [apcu_add('parity', 1), apcu_exists('parity')]);
show('entry', apcu_entry('parity-entry', static fn ($key) => "made for $key"));
show('delete', apcu_delete('parity-entry'));
show('cas', apcu_cas('parity-count', -1, 0));
