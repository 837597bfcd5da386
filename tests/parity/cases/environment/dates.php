<?php
require_once __DIR__ . '/../show.php';
show('timezone', date_default_timezone_get());
show('epoch', date('c', 0));
show('mktime', mktime(0, 0, 0, 1, 1, 2000));
show('now', abs(time() - $_SERVER['REQUEST_TIME']) <= 2);
show('dst', (new DateTime('2024-07-01', new DateTimeZone('Europe/Paris')))->format('c T'));
show('relative', (new DateTimeImmutable('2024-02-28'))->modify('+2 days')->format('Y-m-d'));
show('localtime', localtime(0, true)['tm_year']);
show('intl', (new IntlDateFormatter('de_DE', IntlDateFormatter::FULL, IntlDateFormatter::NONE, 'UTC'))->format(0));
show('hrtime', is_int(hrtime(true)));
show('zone set', [date_default_timezone_set('Asia/Tokyo'), date('c', 0)]);
