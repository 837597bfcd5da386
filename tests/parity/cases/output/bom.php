<?php
header("X-Bom: 1");
echo headers_sent() ? "sent" : "not sent";
