"""`connections = "warm"` with recognised Symfony and Laravel projects: nothing to change in the application."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import requests

from lib.servers import Hayate, MariaDB

from . import frameworks

#: What a request asks of its connection, leaving a transaction and a setting behind.
ASKED = "SELECT CONNECTION_ID() AS number, @@sql_mode AS mode, @@collation_connection AS collation, @@in_transaction AS open, @leak AS leak"
LEFT = ("SET @leak = 1", "SET SESSION sql_mode = ''", "START TRANSACTION", "INSERT INTO notes VALUES (NULL)")

LARAVEL_ROUTE = """
Route::get('/database', function () {
    $seen = \\Illuminate\\Support\\Facades\\DB::selectOne("%s");
    foreach (%s as $statement) {
        \\Illuminate\\Support\\Facades\\DB::unprepared($statement);
    }

    return response()->json($seen);
});
"""

SYMFONY_CONTROLLER = """<?php

namespace App\\Controller;

use App\\Registry;
use Symfony\\Bundle\\FrameworkBundle\\Controller\\AbstractController;
use Symfony\\Component\\HttpFoundation\\JsonResponse;
use Symfony\\Component\\Routing\\Annotation\\Route;

final class DatabaseController extends AbstractController
{
    #[Route('/database')]
    public function database(Registry $doctrine): JsonResponse
    {
        $seen = $doctrine->getConnection()->fetchAssociative("%s");
        foreach (%s as $statement) {
            $doctrine->getConnection()->executeStatement($statement);
        }

        return new JsonResponse($seen);
    }
}
"""

#: What DoctrineBundle, which Debian does not have, makes of its configuration.
SYMFONY_REGISTRY = """<?php

namespace App;

use Symfony\\Bridge\\Doctrine\\ManagerRegistry;
use Symfony\\Component\\DependencyInjection\\Container;

final class Registry extends ManagerRegistry
{
    public function __construct(Container $container, array $connections, string $default)
    {
        $this->container = $container;
        parent::__construct('ORM', $connections, [], $default, 'default', \\stdClass::class);
    }
}
"""

SYMFONY_SERVICES = """
    $services->set('doctrine.dbal.default_connection', \\Doctrine\\DBAL\\Connection::class)->public()
        ->factory([\\Doctrine\\DBAL\\DriverManager::class, 'getConnection'])
        ->args([['driver' => 'pdo_mysql', 'unix_socket' => '%s', 'dbname' => '%s', 'user' => '%s', 'password' => '%s', 'charset' => 'utf8mb4']]);
    $services->set(\\App\\Registry::class)->public()->args([
        \\Symfony\\Component\\DependencyInjection\\Loader\\Configurator\\service('service_container'),
        ['default' => 'doctrine.dbal.default_connection'],
        'default',
    ]);
    $services->alias('doctrine', \\App\\Registry::class)->public();
"""


def replace(path: pathlib.Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, path
    path.write_text(text.replace(old, new, 1))


def as_php(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


@pytest.fixture(scope="module")
def database() -> Iterator[MariaDB]:
    with MariaDB() as server:
        server.sql("CREATE TABLE notes (id INTEGER PRIMARY KEY AUTO_INCREMENT)", server.database)
        yield server


def laravel(directory: pathlib.Path, database: MariaDB) -> pathlib.Path:
    root = frameworks.laravel(directory)
    settings = {
        "driver": "mysql",
        "unix_socket": database.socket,
        "database": database.database,
        "username": database.user,
        "password": database.password,
        "charset": "utf8mb4",
        "collation": "utf8mb4_unicode_ci",
        "prefix": "",
    }
    # As Laravel's own skeleton has them: `strict` is what sets the mode.
    pairs = ", ".join(f"'{key}' => '{value}'" for key, value in settings.items()) + ", 'strict' => true"
    replace(root / "config/database.php", "'default' => 'sqlite'", "'default' => 'mysql'")
    replace(root / "config/database.php", "'connections' => [", f"'connections' => ['mysql' => [{pairs}],")
    with (root / "routes/web.php").open("a") as routes:
        routes.write(LARAVEL_ROUTE % (ASKED, as_php(LEFT)))
    return root


def symfony(directory: pathlib.Path, database: MariaDB) -> pathlib.Path:
    root = frameworks.symfony(directory, runtime=True)
    replace(
        root / "vendor/autoload.php",
        "<?php\n",
        "<?php\nrequire_once '/usr/share/php/Doctrine/DBAL/autoload.php';\nrequire_once '/usr/share/php/Symfony/Bridge/Doctrine/autoload.php';\n",
    )
    (root / "src/Registry.php").write_text(SYMFONY_REGISTRY)
    (root / "src/Controller/DatabaseController.php").write_text((SYMFONY_CONTROLLER % (ASKED, as_php(LEFT))).replace("Annotation", frameworks.ROUTES))
    services = root / "config/services.php"
    end = services.read_text().rindex("};")
    account = (database.socket, database.database, database.user, database.password)
    services.write_text(services.read_text()[:end] + SYMFONY_SERVICES % account + "};\n")
    return root


@pytest.mark.parametrize("make", [laravel, symfony])
def test_the_default_connection_is_kept_and_put_back(tmp_path, database: MariaDB, make) -> None:
    tmp_path.chmod(0o755)
    root = make(tmp_path, database)
    with Hayate(root, workers=1, args=["--rewind", "on"]) as server:
        first, second = (requests.get(server.url + "/database", timeout=60).json() for _ in range(2))
        assert first.pop("number") != second.pop("number"), "each request opens its own"
        assert first == second
    with Hayate(root, workers=1, args=["--rewind", "on", "--connections", "warm", "--rewind-verify", "1"]) as server:
        seen = [requests.get(server.url + "/database", timeout=60).json() for _ in range(20)]
        assert len({answer.pop("number") for answer in seen}) == 1, server.log_tail()
        assert all(answer == first for answer in seen), seen[-1]
        (app,) = server.status()["apps"]
        assert app["mode"] == "worker" and app["boot"] == "shared" and app["restarts"] == {}, server.log_tail()
        assert app["rewind"]["warm"] == 1
    assert database.sql("SELECT count(*) FROM notes", database.database).strip() == "0"
