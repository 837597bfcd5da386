"""PHP's own tests (.phpt of php-src) through a server, against the same through php-cgi."""
