<?php
/* Makes the table of 100,000 users, the same at every run. Does nothing if it is there. */

declare(strict_types=1);

require __DIR__.'/config.php';

const USERS = 100_000;
const BATCH = 1_000;

$database = connect();
try {
    if ((int) $database->query('SELECT COUNT(*) FROM users')->fetchColumn() === USERS) {
        exit(0);
    }
    $database->exec('DROP TABLE users');
} catch (PDOException) {
    // There is none yet.
}
// SQLite knows no times, and Go's driver would make one of a column that is declared as one.
$time = $database->getAttribute(PDO::ATTR_DRIVER_NAME) === 'sqlite' ? 'TEXT' : 'DATETIME';
$database->exec("CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(100) NOT NULL, email VARCHAR(100) NOT NULL, created_at $time NOT NULL)");

mt_srand(20_250_101);
$syllables = ['ka', 'mi', 'to', 'ra', 'no', 'shi', 'yo', 'be', 'lin', 'dor', 'an', 'el', 'us', 'ver', 'ta', 'quo'];
$word = static function () use ($syllables): string {
    $word = '';
    for ($i = mt_rand(2, 4); $i > 0; --$i) {
        $word .= $syllables[mt_rand(0, count($syllables) - 1)];
    }

    return ucfirst($word);
};
$database->beginTransaction();
$insert = 'INSERT INTO users (id, name, email, created_at) VALUES '.implode(', ', array_fill(0, BATCH, '(?, ?, ?, ?)'));
$statement = $database->prepare($insert);
for ($id = 1; $id <= USERS;) {
    $values = [];
    for ($row = 0; $row < BATCH; ++$row, ++$id) {
        [$first, $last] = [$word(), $word()];
        $created = gmdate('Y-m-d H:i:s', 1_420_070_400 + mt_rand(0, 300_000_000));
        array_push($values, $id, "$first $last", strtolower("$first.$last.$id@example.org"), $created);
    }
    $statement->execute($values);
}
$database->commit();
