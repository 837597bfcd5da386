<?php
const INCLUDED_ONCE = true;
echo 'once';
