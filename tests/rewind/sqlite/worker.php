<?php
/*
 * An application whose boot opens a SQLite database ($_SERVER['FILE']) and prepares statements, through PDO or SQLite3
 * (API), in a journal mode (JOURNAL). LEFT: what the boot is in the middle of. Each request does what `do` says.
 * Under php-fpm the script boots for each request.
 */
declare(strict_types=1);

interface Statement
{
    public function run(string $name): void;

    public function next(): mixed;
}

final class Pdo_Statement implements Statement
{
    public function __construct(public PDOStatement $it)
    {
    }

    public function run(string $name): void
    {
        $this->it->execute([$name]);
    }

    public function next(): mixed
    {
        return $this->it->fetchColumn();
    }
}

final class Sqlite_Statement implements Statement
{
    private SQLite3Result $result;

    public function __construct(public SQLite3Stmt $it)
    {
    }

    public function run(string $name): void
    {
        $this->it->bindValue(1, $name);
        $this->result = $this->it->execute();
    }

    public function next(): mixed
    {
        return $this->result->fetchArray()[0] ?? false;
    }
}

if (getenv('API') === 'pdo') {
    $db = new PDO('sqlite:' . getenv('FILE'), null, null, [PDO::ATTR_TIMEOUT => 10]);
    $prepare = fn(string $sql): Statement => new Pdo_Statement($db->prepare($sql));
} else {
    $db = new SQLite3(getenv('FILE'));
    $db->enableExceptions(true);
    $db->busyTimeout(10000);
    $prepare = fn(string $sql): Statement => new Sqlite_Statement($db->prepare($sql));
}
if (getenv('ATTACHED')) {
    // The shop is not the main database of the connection, which is in memory.
    $db = new PDO('sqlite::memory:', null, null, [PDO::ATTR_TIMEOUT => 10]);
    $db->exec("ATTACH '" . getenv('FILE') . '\' AS "sh""op"');
    $prepare = fn(string $sql): Statement => new Pdo_Statement($db->prepare($sql));
}
$db->exec('PRAGMA journal_mode = ' . getenv('JOURNAL'));
$order = $prepare('INSERT INTO orders (name) VALUES (?) RETURNING id');
$orders = $prepare('SELECT name FROM orders WHERE name <> ? ORDER BY id');
match (getenv('LEFT') ?: '') {
    '' => null,
    'half-read' => [$orders->run(''), $orders->next()],
    'transaction' => $db->exec('BEGIN IMMEDIATE'),
    'exclusive' => [$db->exec('PRAGMA locking_mode = EXCLUSIVE'), $db->exec("UPDATE orders SET name = name")],
};

while (hayate_handle_request(function () use ($db, $order, $orders): void {
    if (isset($_SERVER['HAYATE_WARMUP'])) {
        if (getenv('LEFT_WARM')) {
            $orders->run('');
            $orders->next();
        }
        return;
    }
    $name = $_GET['name'] ?? '';
    try {
        switch ($_GET['do'] ?? '') {
            case 'order':
                $order->run($name);
                echo 'your order has number ', $order->next();
                break;
            case 'in a transaction':
                $db->exec('BEGIN');
                $order->run($name);
                echo 'your order would have number ', $order->next();
                break;
            case 'committed':
                $db->exec('BEGIN');
                $order->run($name);
                echo 'your order has number ', $order->next(), json_encode($order->next());
                $db->exec('COMMIT');
                break;
            case 'half read':
                $orders->run('nobody');
                echo $orders->next();
                break;
            case 'own connection':
                $own = new PDO('sqlite:' . getenv('FILE'));
                echo $own->query('INSERT INTO orders (name) VALUES (\'own\') RETURNING id')->fetchColumn();
                break;
            case 'attached':
                $own = new PDO('sqlite::memory:');
                $own->exec("ATTACH '" . getenv('FILE') . "' AS other");
                echo $own->query('SELECT count(*) FROM other.orders')->fetchColumn() > 0 ? 'some' : 'none';
                break;
            case 'file read':
                $order->run($name);
                echo $order->next(), strlen(file_get_contents(getenv('FILE')));
                break;
            case 'read':
                $orders->run('nobody');
                for ($i = 0; false !== $one = $orders->next(); $i++) {
                    echo $one, ' ';
                }
                break;
        }
        match ($_GET['end'] ?? '') {
            '' => null,
            'exit' => exit(),
            'error' => undefined_function(),
        };
    } catch (PDOException | Exception $e) {
        echo get_class($e) === 'Error' ? throw $e : $e->getMessage();
    }
})) {
}
