<?php
for ($number = 0; $number < 200; $number++) {
    header("X-Number-$number: $number");
}
for ($number = 0; $number < 50; $number++) {
    header("X-Repeated: $number", false);
}
echo count(headers_list()), "\n";
