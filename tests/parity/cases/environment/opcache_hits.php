<?php
/* From the second request on a script comes from the cache, whichever process serves it. */
if (isset($_GET['forget'])) {
    echo opcache_invalidate(__FILE__, true) ? "forgotten\n" : "kept\n";
    return;
}
$script = opcache_get_status(true)['scripts'][__FILE__] ?? null;
echo $script === null ? "not cached\n" : ($script['hits'] > 0 ? "hit\n" : "cached\n");
