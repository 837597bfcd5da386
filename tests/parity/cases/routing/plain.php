<?php echo "plain";
