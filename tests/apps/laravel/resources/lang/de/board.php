<?php

return ['greeting' => 'Willkommen'];
