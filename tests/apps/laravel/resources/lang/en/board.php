<?php

return ['greeting' => 'Welcome'];
