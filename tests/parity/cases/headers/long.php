<?php
header('X-Long: ' . str_repeat('v', (int) $_GET['bytes']));
echo 'long';
