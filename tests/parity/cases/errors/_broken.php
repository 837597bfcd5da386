<?php
echo "unclosed {$x";
if (true) {
