"""Parity: the same scripts and requests through nginx + php-fpm and through Hayate, and the answers compared."""
