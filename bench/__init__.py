"""How fast Hayate is, beside php-fpm and nginx, in one interleaved run."""
