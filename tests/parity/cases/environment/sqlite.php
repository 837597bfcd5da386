<?php
require_once __DIR__ . '/../show.php';
$database = new PDO('sqlite::memory:');
$database->exec('CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)');
$statement = $database->prepare('INSERT INTO t (v) VALUES (?)');
foreach (['a', 'é', "b'c"] as $value) {
    $statement->execute([$value]);
}
show('rows', $database->query('SELECT * FROM t')->fetchAll(PDO::FETCH_ASSOC));
show('drivers', PDO::getAvailableDrivers());
