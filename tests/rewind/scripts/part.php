<?php
return 'RELEASE';
