<?php

return ['failed' => 'Nobody has this address and this password.'];
