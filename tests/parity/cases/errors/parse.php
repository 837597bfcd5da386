<?php
echo "never";
this is not php at all;
