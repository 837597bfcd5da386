<?php
echo implode("\n", array_keys($_SERVER)), "\n";
