<?php
echo "appended, saw ", $shared ?? "nothing", ", ", $own ?? "nothing", "\n";
