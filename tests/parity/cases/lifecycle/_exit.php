<?php
exit("in an include\n");
