<?php

// Octane's own settings but for where it keeps its state: a file for each server that is started.
return ['state_file' => env('BLOG_OCTANE_STATE', storage_path('logs/octane-server-state.json'))];
