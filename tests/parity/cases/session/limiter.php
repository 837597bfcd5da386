<?php
session_cache_limiter($_GET['limiter']);
session_cache_expire(10);
if (isset($_GET['own'])) {
    header('Cache-Control: my-own');
    header('Expires: never');
}
session_start();
echo session_cache_limiter(), ' ', session_cache_expire(), "\n";
