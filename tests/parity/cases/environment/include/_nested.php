<?php
return include '_value.php';
