<?php
/* The whole application. */
echo "ok";
