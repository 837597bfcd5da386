<?php
phpinfo(INFO_LICENSE);
