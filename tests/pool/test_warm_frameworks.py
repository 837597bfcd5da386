"""`connections = "warm"` with recognised Symfony and Laravel projects: nothing to change in the application, and no answer that
it would not have given in classic mode."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import time
from collections.abc import Iterator

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate, MariaDB, Redis
from lib.tls import self_signed
from rewind.postgresql import PostgreSQL

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
    $container->parameters()->set('doctrine.connections', ['default' => 'doctrine.dbal.default_connection'])->set('doctrine.default_connection', 'default');
    $services->set('doctrine.dbal.default_connection', \\Doctrine\\DBAL\\Connection::class)->public()
        ->factory(%s)
        ->args([[%s], %s]);
    $services->set(\\App\\Registry::class)->public()->args([
        \\Symfony\\Component\\DependencyInjection\\Loader\\Configurator\\service('service_container'),
        ['default' => 'doctrine.dbal.default_connection'],
        'default',
    ]);
    $services->alias('doctrine', \\App\\Registry::class)->public();
    %s
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


FACTORY = "[\\Doctrine\\DBAL\\DriverManager::class, 'getConnection']"
CONFIGURATION = "\\Symfony\\Component\\DependencyInjection\\Loader\\Configurator\\inline_service(\\Doctrine\\DBAL\\Configuration::class)"


def symfony(
    directory: pathlib.Path,
    database: MariaDB,
    *,
    factory: str = FACTORY,
    name: str | None = None,
    more: str = "",
    parameters: str = "",
    configuration: str = CONFIGURATION,
    services: str = "",
) -> pathlib.Path:
    root = frameworks.symfony(directory, runtime=True)
    replace(
        root / "vendor/autoload.php",
        "<?php\n",
        "<?php\nrequire_once '/usr/share/php/Doctrine/DBAL/autoload.php';\nrequire_once '/usr/share/php/Symfony/Bridge/Doctrine/autoload.php';\n",
    )
    (root / "src/Registry.php").write_text(SYMFONY_REGISTRY)
    (root / "src/Controller/DatabaseController.php").write_text((SYMFONY_CONTROLLER % (ASKED, as_php(LEFT))).replace("Annotation", frameworks.ROUTES))
    file = root / "config/services.php"
    text = file.read_text()
    end = text.rindex("};")
    address = f"'driver' => 'pdo_mysql', 'unix_socket' => '{database.socket}', 'user' => '{database.user}', 'password' => '{database.password}'"
    parameters = parameters or f"{address}, 'dbname' => {name or repr(database.database)}, 'charset' => 'utf8mb4'"
    file.write_text(text[:end] + SYMFONY_SERVICES % (factory, parameters + more, configuration, services) + "};\n")
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


@dataclasses.dataclass(frozen=True)
class Case:
    """What an application of Laravel's has of its own, and what a page of it shows. All is PHP."""

    page: str
    middleware: str = ""
    boot: str = ""
    #: Into the settings of the connection.
    settings: str = ""
    #: Connections that each worker keeps.
    kept: int = 3
    #: Whether a visitor of no tenant is given that to the database, and that to Redis.
    warm: tuple[bool, bool] = (True, True)


DATABASE = "DB::selectOne('SELECT DATABASE() AS d, @@time_zone AS z, @@sql_mode AS m')"
#: The values that the visitor before has left, and the visitor's own for the next one.
REDIS = """(function () use ($tenant) {
    $found = [Cache::get('k'), Redis::connection()->get('k')];
    Cache::put('k', $tenant, 600);
    Redis::connection()->set('k', $tenant);

    return $found;
})()"""
#: A connector of the application's own.
CONNECTOR = """new class extends \\Illuminate\\Database\\Connectors\\MySqlConnector {
    public function connect(array $config) { return parent::connect(['database' => config('app.tenant', $config['database'])] + $config); }
}"""

CASES = {
    "database of a tenant": Case(DATABASE, "config(['database.connections.mysql.database' => $tenant]);"),
    "another default": Case(DATABASE, "config(['database.connections.t' => ['database' => $tenant] + config('database.connections.mysql'), 'database.default' => 't']);", warm=(False, True)),
    "named as its driver": Case(
        "[DB::connection('mysql')->getConfig('name'), DB::connection('t')->getConfig('name'), DB::connection('t')->selectOne('SELECT DATABASE() AS d')]",
        "config(['database.connections.t' => ['database' => $tenant] + config('database.connections.mysql')]);",
    ),
    "time zone": Case(DATABASE, "config(['database.connections.mysql.timezone' => ['hayate' => '+00:00', 'red' => '+09:00', 'blue' => '-05:00'][$tenant]]);", settings="'timezone' => '+00:00',"),
    "modes": Case(DATABASE, "config(['database.connections.mysql.strict' => $tenant !== 'red']);"),
    "prefix of Redis": Case(REDIS, "config(['database.redis.options.prefix' => $tenant]);", warm=(True, False)),
    "database of Redis": Case(
        REDIS,
        "$n = ['hayate' => 1, 'red' => 2, 'blue' => 3][$tenant]; config(['database.redis.cache.database' => $n, 'database.redis.default.database' => $n + 3]);",
    ),
    "Redis made at the boot": Case(REDIS, "config(['database.redis.options.prefix' => $tenant]);", "app('redis');"),
    "Redis opened at the boot": Case(
        REDIS, "config(['database.redis.options.prefix' => $tenant]);", "app('redis')->connection()->ping(); app('redis')->connection('cache')->ping();"
    ),
    "Redis of its own": Case(
        REDIS,
        "config(['app.tenant' => $tenant]);",
        "$this->app->extend('redis', fn ($redis) => $redis->extend('phpredis', fn () => new class extends \\Illuminate\\Redis\\Connectors\\PhpRedisConnector {"
        " protected function createClient(array $config) { return parent::createClient(['prefix' => config('app.tenant', '')] + $config); } }));",
        warm=(True, False),
    ),
    "extension": Case(
        DATABASE,
        "config(['app.tenant' => $tenant]);",
        "DB::extend('mysql', fn ($config, $name) => app('db.factory')->make(array_replace($config, ['database' => config('app.tenant', 'hayate')]), $name));",
    ),
    "extension of a middleware": Case(
        DATABASE, "DB::extend('mysql', fn ($config, $name) => app('db.factory')->make(array_replace($config, ['database' => $tenant]), $name));"
    ),
    "connector": Case(DATABASE, "config(['app.tenant' => $tenant]);", f"$this->app->bind('db.connector.mysql', fn () => {CONNECTOR});", kept=2, warm=(False, True)),
    "connector of a middleware": Case(
        DATABASE, f"config(['app.tenant' => $tenant]); app()->bind('db.connector.mysql', fn () => {CONNECTOR});", warm=(False, True)
    ),
    "class of its own": Case(
        "[DB::connection()::class === \\App\\Own::class, \\App\\Own::$made, DB::selectOne('SELECT 1 AS one')]",
        boot="\\Illuminate\\Database\\Connection::resolverFor('mysql', fn (...$with) => new \\App\\Own(...$with));",
    ),
    "listeners": Case(
        "[DB::selectOne('SELECT 1 AS one'), \\App\\Count::$heard]",
        boot="DB::listen(fn ($query) => \\App\\Count::$heard[] = $query->sql);"
        "foreach ([\\Illuminate\\Database\\Events\\StatementPrepared::class, 'Illuminate\\Database\\Events\\ConnectionEstablished'] as $event) {"
        " Event::listen($event, fn ($of) => \\App\\Count::$heard[] = $of::class); }"
        "$this->app->beforeResolving('redis', fn () => \\App\\Count::$heard[] = 'redis');"
        "$this->app->resolving(fn ($made) => is_object($made) && str_contains($made::class, 'Connect') && \\App\\Count::$heard[] = $made::class);",
    ),
    "log of queries": Case("[DB::selectOne('SELECT 1 AS one'), count(DB::getQueryLog())]", boot="DB::connection(); DB::enableQueryLog();"),
    "a listener that asks for the route": Case(
        "DB::selectOne('SELECT 1 AS one')", boot="DB::listen(function () { if (request()->route()->uri() === 'x') { throw new \\Exception(); } });"
    ),
    "what is made": Case(
        "[app()->resolved('redis'), app()->resolved('redis.connection'), app()->providerIsLoaded(\\Illuminate\\Redis\\RedisServiceProvider::class), "
        "array_keys(DB::getConnections()), DB::connection()->getRawPdo() instanceof \\PDO, DB::connection()->transactionLevel()]"
    ),
    "reconnected": Case(
        "[DB::select('SELECT @x := 1'), DB::reconnect() && false, DB::select('SELECT @x AS x, @x := 2'),"
        " DB::purge(), DB::select('SELECT @x AS x'), DB::connection('mysql::read')->select('SELECT @x AS x')]",
        # What is given up is closed, with its locks; so it costs the worker.
        warm=(False, False),
    ),
    "a socket's time": Case("[DB::selectOne('SELECT 1 AS one'), Cache::get('none')]", "ini_set('default_socket_timeout', '7');", warm=(False, False)),
}

PAGE = """
Route::get('/pid', fn () => getmypid());
Route::get('/asked', function () {
    $tenant = request()->header('X-Tenant', 'hayate');
    $shown = %s;

    return response()->json([$shown, 'number' => DB::selectOne('SELECT CONNECTION_ID() AS n')->n, 'redis' => Redis::connection()->client()->rawCommand('CLIENT', 'ID')]);
});
"""

OWN = {
    "Own": "class Own extends \\Illuminate\\Database\\MySqlConnection {{ public static $made = 0; public function __construct(...$with) {{ self::$made++; parent::__construct(...$with); }} }}",
    "Count": "class Count {{ public static $heard = []; }}",
    "Tenant": "class Tenant {{ public function handle($request, $next) {{ $tenant = $request->header('X-Tenant', 'hayate'); {middleware} return $next($request); }} }}",
}
FACADES = "".join(f"use Illuminate\\Support\\Facades\\{name};\n" for name in ("Cache", "DB", "Event", "Redis"))


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def application(directory: pathlib.Path, database: MariaDB, redis: Redis, case: Case) -> pathlib.Path:
    directory.chmod(0o755)
    root = laravel(directory, database)
    for name, code in OWN.items():
        (root / f"app/{name}.php").write_text(f"<?php\n\nnamespace App;\n\n{FACADES}\n{code.format(middleware=case.middleware)}\n")
    replace(root / "app/Http/Kernel.php", "'web' => [", "'web' => [\\App\\Tenant::class, ")
    provider = root / "app/Providers/AppServiceProvider.php"
    replace(provider, "use Illuminate\\Support\\ServiceProvider;\n", f"{FACADES}use Illuminate\\Support\\ServiceProvider;\n")
    replace(provider, "    public function register", f"    public function boot(): void\n    {{\n        {case.boot}\n    }}\n\n    public function register")
    providers = "Illuminate\\Redis\\RedisServiceProvider::class, Illuminate\\Cache\\CacheServiceProvider::class"
    replace(root / "config/app.php", "'providers' => [", f"'providers' => [{providers},")
    replace(root / "config/session.php", "'file'", "'redis'")
    address = f"'host' => '127.0.0.1', 'port' => {redis.port}"
    connections = f"'client' => 'phpredis', 'options' => ['prefix' => 'lar_'], 'default' => [{address}, 'database' => 4], 'cache' => [{address}, 'database' => 1]"
    replace(root / "config/database.php", "return [", f"return ['redis' => [{connections}],")
    replace(root / "config/database.php", "'mysql' => [", f"'mysql' => [{case.settings}")
    (root / "config/cache.php").write_text("<?php return ['default' => 'redis', 'stores' => ['redis' => ['driver' => 'redis', 'connection' => 'cache']], 'prefix' => 'x'];")
    routes = root / "routes/web.php"
    replace(routes, "use Illuminate\\Http\\Request;\n", f"{FACADES}use Illuminate\\Http\\Request;\n")
    with routes.open("a") as more:
        more.write(PAGE % case.page)
    return root


#: Each tenant, and a visitor of none, in turns.
VISITORS = ["", "red", "blue", "red", "", "blue", "", "", "red", ""]


def shown(server: Hayate, redis: Redis) -> tuple[list[object], list[int], list[int]]:
    """What pages show, and the connections that those had who belong to no tenant."""
    subprocess.run(["/usr/bin/redis-cli", "-s", str(redis.socket), "FLUSHALL"], check=True, capture_output=True, timeout=60)
    pages: list[object] = []
    numbers: list[list[int]] = [[], []]
    for tenant in VISITORS:
        answer = requests.get(server.url + "/asked", headers={"X-Tenant": tenant} if tenant else {}, timeout=60)
        assert answer.status_code == 200, (answer.text[:2000], server.log_tail())
        page = answer.json()
        pages.append(page["0"])
        if not tenant:
            numbers[0].append(page["number"])
            numbers[1].append(page["redis"])
    return pages, *numbers


def kept_and_same(root: pathlib.Path, redis: Redis, case: Case) -> None:
    with Hayate(root, workers=1, args=["--mode", "classic"]) as server:
        expected, *_ = shown(server, redis)
    with Hayate(root, workers=1, args=["--rewind", "on", "--connections", "warm", "--rewind-verify", "1"]) as server:
        pages, numbers, clients = shown(server, redis)
        assert pages == expected, server.log_tail()
        (app,) = server.status()["apps"]
        assert (app["mode"], app["fallback"]) == ("worker", None), server.log_tail()
        assert (len(set(numbers)) == 1, len(set(clients)) == 1) == case.warm, (numbers, clients)
        assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == case.kept), server.log_tail()


@pytest.fixture(scope="module")
def tenants(database: MariaDB) -> MariaDB:
    for name in ("red", "blue"):
        database.sql(f"CREATE DATABASE {name}")
    return database


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_laravel_hands_out_what_the_request_would_have_opened(tmp_path, tenants: MariaDB, redis: Redis, case: Case) -> None:
    kept_and_same(application(tmp_path, tenants, redis, case), redis, case)


def test_laravel_with_postgresql(tmp_path, database: MariaDB, redis: Redis) -> None:
    """The path of a tenant, and what libpq takes from the environment: with no setting there is nothing to be said when it is opened."""
    page = "DB::selectOne(\"SELECT current_setting('search_path') AS path, current_setting('application_name') AS name\")"
    middleware = "if ($tenant === 'red') { config(['database.connections.pgsql.search_path' => $tenant, 'database.connections.pgsql.schema' => $tenant]); }"
    middleware += "if ($tenant === 'blue') { putenv('PGAPPNAME=blue'); }"
    with PostgreSQL() as server:
        settings = f"'driver' => 'pgsql', 'host' => '127.0.0.1', 'port' => {server.port}, 'database' => 'postgres', 'username' => 'postgres', 'prefix' => ''"
        root = application(tmp_path, database, redis, Case(page, middleware))
        replace(root / "config/database.php", "'default' => 'mysql'", "'default' => 'pgsql'")
        replace(root / "config/database.php", "'connections' => [", f"'connections' => ['pgsql' => [{settings}],")
        replace(root / "routes/web.php", "CONNECTION_ID() AS n'", "pg_backend_pid() AS n'")
        kept_and_same(root, redis, Case(page, middleware))


def test_laravel_reads_and_writes_on_two(tmp_path, tenants: MariaDB, redis: Redis) -> None:
    """Each of two that a request opens, as it opens them: the one to read from is another database here."""
    page = "[DB::selectOne('SELECT DATABASE() AS d'), DB::selectFromWriteConnection('SELECT DATABASE() AS d')]"
    case = Case(page, settings="'read' => ['database' => 'red'], 'write' => ['database' => 'blue'],", kept=4)
    kept_and_same(application(tmp_path, tenants, redis, case), redis, case)


def test_what_cannot_be_opened_costs_no_worker_again_and_again(tmp_path, database: MariaDB, redis: Redis) -> None:
    """Settings that are wrong will be wrong for the next worker, too; of a server that is not there each number of a worker tells once."""
    root = application(tmp_path, database, redis, Case("'home'", settings="'host' => [],"))
    replace(root / "config/database.php", f"'port' => {redis.port}, 'database' => 1", "'port' => 9, 'database' => 1")
    args = ["--rewind", "on", "--connections", "warm"]
    with Hayate(root, workers=1, args=args) as server:
        seen = set()
        end = time.monotonic() + 25
        while time.monotonic() < end:
            assert requests.get(server.url + "/pid", timeout=60).status_code == 200
            seen.add(requests.get(server.url + "/pid", timeout=60).text)
            time.sleep(0.5)
        log = server.log()
        assert len(seen) <= 2, log  # another one tried after ten seconds; the next after twenty
        assert log.count("RedisException") == 1 and "connections = \"warm\"" in log and "hosts array is empty" in log, log
        # Of the session's Redis there was nothing to say.
        assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 1), log


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory) -> Iterator[PostgreSQL]:
    """As Debian has it."""
    with PostgreSQL(self_signed(tmp_path_factory.mktemp("tls"), "database", ["localhost"])) as server:
        yield server


def asked_over_tls(root: pathlib.Path, path: str, args: list[str], kept: int) -> None:
    with Hayate(root, workers=2, args=[*args, "--rewind", "on", "--connections", "warm"]) as server:
        for _ in range(20):
            answer = requests.get(server.url + path, timeout=60)
            assert answer.status_code == 200, (answer.text[:2000], server.log_tail())
        assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == kept), server.log_tail()
        (app,) = server.status()["apps"]
        assert set(app["restarts"]) == {"connection_lost"} and app["restarts"]["connection_lost"] <= 2, (app, server.log_tail())
        assert (app["mode"], app["fallback"]) == ("worker", None)
        assert server.log().count("is not kept from request to request: it is encrypted (TLS)") == 1, server.log()


def test_laravel_with_postgresql_over_tls(tmp_path, encrypted: PostgreSQL, database: MariaDB, redis: Redis) -> None:
    """Each request that asked cost its worker; and Redis stays warm."""
    case = Case("DB::selectOne(\"SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()\")")
    root = application(tmp_path, database, redis, case)
    address = f"'host' => '127.0.0.1', 'port' => {encrypted.port}, 'sslmode' => 'prefer'"
    settings = f"'driver' => 'pgsql', {address}, 'database' => 'postgres', 'username' => 'postgres', 'prefix' => ''"
    replace(root / "config/database.php", "'default' => 'mysql'", "'default' => 'pgsql'")
    replace(root / "config/database.php", "'connections' => [", f"'connections' => ['pgsql' => [{settings}],")
    replace(root / "routes/web.php", "CONNECTION_ID() AS n'", "pg_backend_pid() AS n'")
    asked_over_tls(root, "/asked", [], 4)


def test_symfony_with_postgresql_over_tls(tmp_path, encrypted: PostgreSQL, database: MariaDB) -> None:
    tmp_path.chmod(0o755)
    address = f"'driver' => 'pdo_pgsql', 'host' => '127.0.0.1', 'port' => {encrypted.port}"
    root = symfony(tmp_path, database, parameters=f"{address}, 'dbname' => 'postgres', 'user' => 'postgres'")
    controller = root / "src/Controller/DatabaseController.php"
    controller.write_text(controller.read_text().replace(ASKED, "SELECT 1 AS one").replace(as_php(LEFT), "[]"))
    asked_over_tls(root, "/database", ["--env", "APP_ENV=prod", "--env", "GREETING=x"], 0)


#: What an application of Symfony's has of its own, by files in src/.
SYMFONY_OWN = {
    "Chooses": """final class Chooses implements \\Symfony\\Component\\EventDispatcher\\EventSubscriberInterface
{
    public static function getSubscribedEvents(): array { return ['kernel.request' => 'choose']; }
    public function choose(\\Symfony\\Component\\HttpKernel\\Event\\RequestEvent $event): void { $_ENV['TENANT_DATABASE'] = $event->getRequest()->headers->get('X-Tenant', 'hayate'); }
}""",
    "Switches": """final class Switches implements \\Symfony\\Component\\EventDispatcher\\EventSubscriberInterface
{
    public function __construct(private Registry $doctrine) {}
    public static function getSubscribedEvents(): array { return ['kernel.request' => 'choose']; }
    public function choose(\\Symfony\\Component\\HttpKernel\\Event\\RequestEvent $event): void
    {
        $db = $this->doctrine->getConnection();
        $tenant = $event->getRequest()->headers->get('X-Tenant');
        $tenant && $db->__construct(['dbname' => $tenant] + $db->getParams(), $db->getDriver(), $db->getConfiguration());
    }
}""",
    "Middleware": """final class Middleware implements \\Doctrine\\DBAL\\Driver\\Middleware
{
    public function __construct(private \\Symfony\\Component\\HttpFoundation\\RequestStack $requests) {}
    public function wrap(\\Doctrine\\DBAL\\Driver $driver): \\Doctrine\\DBAL\\Driver
    {
        return new class($driver, $this->requests) extends \\Doctrine\\DBAL\\Driver\\Middleware\\AbstractDriverMiddleware {
            public function __construct($driver, private $requests) { parent::__construct($driver); }
            public function connect(array $params): \\Doctrine\\DBAL\\Driver\\Connection
            {
                return parent::connect(array_replace($params, ['dbname' => $this->requests->getMainRequest()?->headers->get('X-Tenant') ?? 'hayate']));
            }
        };
    }
}""",
    "Factory": """final class Factory
{
    public function __construct(private \\Symfony\\Component\\HttpFoundation\\RequestStack $requests) {}
    public function make(array $params): \\Doctrine\\DBAL\\Connection
    {
        return \\Doctrine\\DBAL\\DriverManager::getConnection(array_replace($params, ['dbname' => $this->requests->getMainRequest()?->headers->get('X-Tenant') ?? 'hayate']));
    }
}""",
    "Own": """final class Own extends \\Doctrine\\DBAL\\Connection
{
    public static array $made = [];
    public function __construct(...$with) { self::$made[] = $_SERVER['HTTP_X_TENANT'] ?? ''; parent::__construct(...$with); }
}""",
    "Lines": """final class Lines extends \\Psr\\Log\\AbstractLogger
{
    public static array $lines = [];
    public function log($level, $message, array $context = []): void { self::$lines[] = $message; }
}""",
    "Controller/AskedController": """use Symfony\\Bundle\\FrameworkBundle\\Controller\\AbstractController;
use App\\Registry;
use Symfony\\Component\\HttpFoundation\\JsonResponse;
use Symfony\\Component\\Routing\\Annotation\\Route;

final class AskedController extends AbstractController
{
    #[Route('/asked')]
    public function asked(Registry $doctrine): JsonResponse
    {
        $db = $doctrine->getConnection();
        $shown = [$db->fetchOne('SELECT DATABASE()'), $db::class, class_exists(\\App\\Own::class, false) ? \\App\\Own::$made : null, \\App\\Lines::$lines];

        return new JsonResponse([$shown, 'number' => $db->fetchOne('SELECT CONNECTION_ID()')]);
    }
}""",
}
IN_CONTAINER = "\\Symfony\\Component\\DependencyInjection\\Loader\\Configurator\\"
SYMFONY_CASES = {
    # What it has, and how many connections a worker keeps.
    "plain": ({}, [], 1),
    "environment": ({"name": f"{IN_CONTAINER}env('TENANT_DATABASE')"}, ["Chooses"], 1),
    "parameters of the request's": ({}, ["Switches"], 1),
    "middleware": (
        {"configuration": f"{CONFIGURATION}->call('setMiddlewares', [[{IN_CONTAINER}service(\\App\\Middleware::class)]])"},
        ["Middleware"],
        0,
    ),
    "factory": ({"factory": f"[{IN_CONTAINER}service(\\App\\Factory::class), 'make']"}, ["Factory"], 0),
    "class of its own": ({"more": ", 'wrapperClass' => \\App\\Own::class"}, ["Own"], 0),
    "lines of a log": (
        {
            "configuration": f"{CONFIGURATION}->call('setMiddlewares', [[{IN_CONTAINER}inline_service(\\Doctrine\\DBAL\\Logging\\Middleware::class)"
            f"->args([{IN_CONTAINER}service(\\App\\Lines::class)])]])",
        },
        [],
        0,
    ),
}


@pytest.mark.parametrize("case", SYMFONY_CASES.values(), ids=SYMFONY_CASES)
def test_symfony_hands_out_what_the_request_would_have_opened(tmp_path, tenants: MariaDB, case: tuple[dict[str, str], list[str], int]) -> None:
    has, files, kept = case
    tmp_path.chmod(0o755)
    root = symfony(tmp_path, tenants, **has)
    for name in [*files, "Lines", "Controller/AskedController"]:
        if not (root / f"src/{name}.php").exists():
            space = "App\\Controller" if "/" in name else "App"
            text = SYMFONY_OWN[name].replace("Annotation", frameworks.ROUTES)
            (root / f"src/{name}.php").write_text(f"<?php\n\nnamespace {space};\n\n{text}\n")
    env = ["--env", "TENANT_DATABASE=hayate", "--env", "APP_ENV=prod", "--env", "GREETING=x"]
    with Hayate(root, workers=1, args=[*env, "--mode", "classic"]) as server:
        expected, _ = shown_by_symfony(server)
    with Hayate(root, workers=1, args=[*env, "--rewind", "on", "--connections", "warm", "--rewind-verify", "1"]) as server:
        pages, numbers = shown_by_symfony(server)
        assert pages == expected, server.log_tail()
        (app,) = server.status()["apps"]
        assert (app["mode"], app["fallback"], app["restarts"]) == ("worker", None, {}), server.log_tail()
        assert (app["rewind"]["warm"], len(set(numbers)) == 1) == (kept, kept == 1), (numbers, server.log_tail())


#: Each request says what it found, and leaves what must not be found: a transaction, settings, a lock, a temporary table.
POSTGRESQL = """use App\\Registry;
use Symfony\\Component\\HttpFoundation\\JsonResponse;
use Symfony\\Component\\Routing\\Annotation\\Route;

final class AskedController extends \\Symfony\\Bundle\\FrameworkBundle\\Controller\\AbstractController
{
    #[Route('/asked')]
    public function asked(Registry $doctrine): JsonResponse
    {
        $db = $doctrine->getConnection();
        $shown = $db->fetchAssociative("SELECT current_database() AS of, current_setting('search_path') AS path, current_setting('application_name') AS name,
            current_setting('timezone') AS zone, to_regclass('pg_temp.leftover') AS left, (SELECT count(*) FROM notes) AS notes,
            (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks");
        $number = $db->fetchOne('SELECT pg_backend_pid()');
        foreach (['SELECT pg_advisory_lock(7)', 'SET search_path = nowhere', "SET timezone = 'Asia/Tokyo'", 'CREATE TEMPORARY TABLE leftover (id int)'] as $statement) {
            $db->executeStatement($statement);
        }
        $db->beginTransaction();
        $db->executeStatement('INSERT INTO public.notes VALUES (1)');

        return new JsonResponse([$shown, 'number' => $number]);
    }
}"""
OF_THE_ENVIRONMENT = """final class Chooses implements \\Symfony\\Component\\EventDispatcher\\EventSubscriberInterface
{
    public static function getSubscribedEvents(): array { return ['kernel.request' => 'choose']; }
    public function choose(\\Symfony\\Component\\HttpKernel\\Event\\RequestEvent $event): void
    {
        $tenant = $event->getRequest()->headers->get('X-Tenant');
        $tenant && putenv("PGAPPNAME=$tenant") && putenv("PGOPTIONS=-c search_path=$tenant,public");
    }
}"""


OF_A_TENANT = {"nothing": {}, "parameters": {"Switches": SYMFONY_OWN["Switches"]}, "environment": {"Chooses": OF_THE_ENVIRONMENT}}


@pytest.mark.parametrize("own", OF_A_TENANT)
def test_symfony_with_postgresql(tmp_path, database: MariaDB, own: str) -> None:
    """Doctrine's default connection, by libpq: a tenant's database, and what libpq takes from the environment."""
    tmp_path.chmod(0o755)
    with PostgreSQL() as server:
        for name in ("red", "blue"):
            server.sql(f"CREATE DATABASE {name}")
        root = symfony(
            tmp_path,
            database,
            parameters=f"'driver' => 'pdo_pgsql', 'host' => '127.0.0.1', 'port' => {server.port}, 'dbname' => 'postgres', 'user' => 'postgres'",
        )
        for name in ("postgres", "red", "blue"):
            server.sql("CREATE TABLE notes (id int)", name)
        for name, text in {"Controller/AskedController": POSTGRESQL, **OF_A_TENANT[own]}.items():
            space = "App\\Controller" if "/" in name else "App"
            (root / f"src/{name}.php").write_text(f"<?php\n\nnamespace {space};\n\n{text.replace('Annotation', frameworks.ROUTES)}\n")
        env = ["--env", "APP_ENV=prod", "--env", "GREETING=x"]
        with Hayate(root, workers=1, args=[*env, "--mode", "classic"]) as hayate:
            expected, numbers = shown_by_symfony(hayate)
            assert len(set(numbers)) > 1 and {page["notes"] for page in expected} == {0}
            assert len({(page["of"], page["name"], page["path"]) for page in expected}) == (1 if own == "nothing" else 3), expected
        with Hayate(root, workers=1, args=[*env, "--rewind", "on", "--connections", "warm", "--rewind-verify", "1"]) as hayate:
            pages, numbers = shown_by_symfony(hayate)
            assert pages == expected, hayate.log_tail()
            (app,) = hayate.status()["apps"]
            assert (app["mode"], app["fallback"], app["restarts"]) == ("worker", None, {}), hayate.log_tail()
            assert (app["rewind"]["warm"], len(set(numbers))) == (1, 1), (numbers, hayate.log_tail())
        assert server.sql("SELECT count(*) FROM notes").strip() == "0"


def shown_by_symfony(server: Hayate) -> tuple[list[object], list[int]]:
    pages, numbers = [], []
    for tenant in VISITORS:
        answer = requests.get(server.url + "/asked", headers={"X-Tenant": tenant} if tenant else {}, timeout=60)
        assert answer.status_code == 200, (answer.text[:2000], server.log_tail())
        pages.append(answer.json()["0"])
        if not tenant:
            numbers.append(answer.json()["number"])
    return pages, numbers
