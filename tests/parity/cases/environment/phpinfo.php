<?php
/* The names in phpinfo(), without the values. */
ob_start();
phpinfo(INFO_ALL & ~INFO_ENVIRONMENT & ~INFO_VARIABLES);
$text = ob_get_clean();
preg_match_all('~<h[12][^>]*>(?:<a[^>]*>)?(.*?)<|<td class="e">(.*?)</td>~s', $text, $found, PREG_SET_ORDER);
foreach ($found as $match) {
    echo trim(html_entity_decode(strip_tags($match[1] ?: ($match[2] ?? '')))), "\n";
}
