"""Real applications on the frameworks Debian ships, driven as a browser would: Symfony, Laravel, WordPress."""
