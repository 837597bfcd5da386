<?php
echo function_exists('hayate_handle_request') ? 'worker' : 'classic only';
