<?php

return ['defaults' => ['guard' => 'none'], 'guards' => [], 'providers' => []];
