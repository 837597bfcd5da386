<?php
return 'value';
