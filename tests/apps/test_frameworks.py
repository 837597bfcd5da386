"""CodeIgniter 4, CakePHP 5, Yii 2, Slim 4, Mezzio and Laminas MVC: the skeleton that each comes with, with a small shop put into it (skeletons/).

As under php-fpm, in classic mode, and recognised and rewound with all memory compared. No Debian has them as packages, and nothing
of theirs lies here: HAYATE_FRAMEWORKS names a directory with what Composer makes of them, each with its vendor/,

    codeigniter/   composer create-project codeigniter4/appstarter
    cakephp/       composer create-project cakephp/app
    yii2/          composer create-project yiisoft/yii2-app-basic
    slim4/         composer require slim/slim slim/psr7
    mezzio/        composer create-project mezzio/mezzio-skeleton (modular, laminas-servicemanager, FastRoute, no template engine)
    laminas/       composer create-project laminas/laminas-mvc-skeleton (minimal)

and those that it has are tested. Without it this file is left out.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator

import pytest

from lib.process import temporary_directory
from lib.servers import Hayate

from .browser import Browser
from .conftest import MORE, REFERENCE, Served, serving
from .sites import SHOP, SKELETONS, USER, Site, skeleton

#: What a form without its token gets.
REFUSED = {"codeigniter": 303, "cakephp": 403, "yii2": 400, "slim4": 403, "mezzio": 403, "laminas": 403}
PHOTO = b"\xff\xd8" + bytes(range(256)) * 500
pytestmark = pytest.mark.skipif(not SKELETONS, reason="HAYATE_FRAMEWORKS names no directory with frameworks")


@pytest.fixture(scope="module", params=REFUSED)
def framework(request: pytest.FixtureRequest) -> str:
    if SKELETONS and not (SKELETONS / request.param / "vendor/autoload.php").is_file():
        pytest.skip(f"HAYATE_FRAMEWORKS has no {request.param}")
    return request.param


@pytest.fixture(scope="module")
def make(framework: str) -> Callable[[pathlib.Path], Site]:
    return functools.partial(skeleton, framework)


@pytest.fixture(scope="module", params=[REFERENCE, "classic", "rewind", *MORE])
def served(request: pytest.FixtureRequest, make: Callable[[pathlib.Path], Site]) -> Iterator[Served]:
    with serving(request.param, make) as served:
        yield served


def test_each_url_has_its_own_page(browser: Browser, framework: str) -> None:
    for host in ("shop.test", "other.test"):
        home = browser.get("/", headers={"Host": host}).text
        # CodeIgniter knows one host, that of its configuration. Slim's own request takes the port from SERVER_PORT.
        host = "shop.test" if framework == "codeigniter" else host
        assert re.fullmatch(rf'<a href="http://{host}(:\d+)?/people/ada">Ada</a> of {SHOP}', home), home
    for name in ("ada", "grace", "ada"):
        page = browser.get(f"/people/{name}?page=2")
        assert (page.status, page.text) == (200, f"{name} at /people/{name} page 2")
    assert browser.get("/people/ada").text == "ada at /people/ada page "
    for _ in range(2):
        assert browser.get("/nothing").status == 404


def test_no_request_sees_what_another_left(browser: Browser) -> None:
    paths = ("/", "/people/ada", "/form", "/", "/people/grace", "/visits")
    assert {browser.get(path).response.headers["X-Requests"] for path in paths} == {"1"}


def test_two_visitors_have_sessions_of_their_own(url: str) -> None:
    ada, grace = Browser(url), Browser(url)
    seen = [visitor.get("/visits").text for visitor in (ada, grace, ada, ada, grace, Browser(url), ada)]
    assert seen == ["1", "1", "2", "3", "2", "1", "4"]


def test_a_form_with_a_file(url: str) -> None:
    ada, grace = Browser(url), Browser(url)
    forms = [visitor.get("/form") for visitor in (ada, grace)]
    assert [form.one("//p[@id='sent']") for form in forms] == ["nothing", "nothing"]
    first = forms[0].submit({"name": "Ada"}, files={"photo": ("ada.jpg", PHOTO, "image/jpeg")})
    second = forms[1].submit({"name": "Gr<ä>ce"}, files={"photo": ("", b"", "application/octet-stream")})
    assert (first.path, first.one("//p[@id='sent']")) == ("/form", f"Ada, ada.jpg {hashlib.sha1(PHOTO).hexdigest()}")
    assert second.one("//p[@id='sent']") == "Gr<ä>ce, no photo"
    assert Browser(url).get("/form").one("//p[@id='sent']") == "nothing"


def test_a_form_without_its_token_is_refused(url: str, framework: str) -> None:
    ada, grace = Browser(url), Browser(url)
    for visitor in (ada, grace):
        visitor.get("/form")
    theirs = dict(grace.get("/form").tree.xpath("//form")[0].form_values())
    for sent in ({"name": "Eve"}, {**theirs, "name": "Eve"}):
        assert ada.post("/form", data=sent, redirects=False).status == REFUSED[framework]
    assert ada.get("/form").one("//p[@id='sent']") == "nothing"


def test_cookies(url: str) -> None:
    ada, grace = Browser(url), Browser(url)
    assert [ada.get("/cookie/sweet").text, ada.get("/cookie/sour").text, grace.get("/cookie/salt").text] == ["had none", "had sweet", "had none"]
    assert ada.get("/cookie/sweet").text == "had sour"


def test_exit_and_errors_end_one_request(browser: Browser, framework: str) -> None:
    for _ in range(3):
        assert browser.get("/exit").text == "left"
        failed = browser.get("/fails")
        assert (failed.status, "it fails" in failed.text) == (500, False)
        assert browser.get("/people/ada").status == 200


#: Drawn anew for each visitor or request, or the server's.
DRAWN = re.compile(r"[0-9A-Za-z+/_=%-]{24,}")
OTHERS = {"date", "server", "connection", "keep-alive", "transfer-encoding", "content-length"}
ASKED = ["/", "/people/ada?page=3", "/people/Gr%C3%A4fin%20A", "/nothing", "/form", "/visits", "/cookie/sweet", "/fails", "/exit", "/people/", "//"]


def test_answers_are_those_of_php_fpm(make: Callable[[pathlib.Path], Site]) -> None:
    """Head and body, each twice, in one session; what is drawn is left out."""

    def answers(url: str) -> list[tuple]:
        visitor, given = Browser(url), []
        for path in ASKED * 2:
            answer = visitor.get(path, redirects=False, headers={"Host": "shop.test"}).response
            head = sorted((name.lower(), DRAWN.sub("…", value)) for name, value in answer.headers.items() if name.lower() not in OTHERS)
            given.append((path, answer.status_code, [line for line in head if "expires" not in line[1]], DRAWN.sub("…", answer.text.replace(url.rpartition(":")[2], "…"))))
        return given

    found = {}
    for mode in ("reference", "classic", "rewind"):
        with serving(mode, make) as running:
            found[mode] = answers(running.url)
    assert found["reference"][0][1:2] == (200,)
    for mode in ("classic", "rewind"):
        for mine, right in zip(found[mode], found["reference"], strict=True):
            assert mine == right


def test_nobody_has_to_ask_for_it(make: Callable[[pathlib.Path], Site]) -> None:
    directory = temporary_directory("apps")
    try:
        site = make(directory)
        env = [flag for name, value in site.env.items() for flag in ("--env", f"{name}={value}")]
        with Hayate(site.root, workers=1, ini=site.ini, user=USER, args=env) as hayate:
            assert Browser(hayate.url).get("/people/ada").status == 200
            (app,) = hayate.status()["apps"]
            assert app["mode"] == "worker", hayate.log()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


#: What development mode is written like; and what looks at the request before it is handled, where it is certain to be seen.
DEVELOPS = {
    "codeigniter": (".env", "CI_ENVIRONMENT = production", "CI_ENVIRONMENT = development"),
    "cakephp": ("config/app_local.php", "'debug' => false", "'debug' => true"),
    "yii2": ("web/index.php", "require __DIR__ . '/../vendor/autoload.php'", "define('YII_DEBUG', true);\nrequire __DIR__ . '/../vendor/autoload.php'"),
    "mezzio": ("config/development.config.php", "", "<?php return ['debug' => true];\n"),
    "laminas": ("config/development.config.php", "", "<?php return ['modules' => []];\n"),
}
LOOKS = {
    "codeigniter": ("app/Config/App.php", "class App extends BaseConfig\n{", "class App extends BaseConfig\n{\n    public static function host(): string { return $_SERVER['HTTP_HOST']; }\n"),
    "cakephp": ("config/app_local.php", "env('SHOP_NAME')", "env('SHOP_NAME').env('HTTP_X_SHOP')"),
    "yii2": ("config/web.php", "getenv('SHOP_NAME')", "getenv('SHOP_NAME').($_COOKIE['shop'] ?? '')"),
    "slim4": ("public/index.php", "getenv('SHOP_NAME')", "getenv('SHOP_NAME').($_COOKIE['shop'] ?? '')"),
    "laminas": ("module/Application/config/module.config.php", "getenv('SHOP_NAME')", "getenv('SHOP_NAME').($_COOKIE['shop'] ?? '')"),
    "mezzio": ("config/routes.php", "$shop = [", "$lang = $_GET['lang'] ?? 'en';\n    $shop = ["),
}
#: The same in functions that run as the application is bootstrapped: of the page that is compared nothing depends on it.
MODULE = "module/Application/src/Module.php", "public function getConfig(", "public function onBootstrap($event): void\n    {\n        %s;\n    }\n\n    public function getConfig("
BOOTSTRAP = "config/web.php", "'bootstrap' => ['log']", "'bootstrap' => ['log', static function ($app): void { %s; }]"
CAKE = "src/Application.php", "parent::bootstrap();", "parent::bootstrap();\n        %s;"
IGNITER = "app/Config/Exceptions.php", "class Exceptions extends BaseConfig\n{", "class Exceptions extends BaseConfig\n{\n    public function __construct()\n    {\n        parent::__construct();\n        %s;\n    }\n"
BOOTSTRAPS = {
    "language": ("yii2", BOOTSTRAP, "$app->language = $app->request->getPreferredLanguage(['en', 'de'])"),
    "cookie": ("yii2", BOOTSTRAP, "$app->params['taste'] = $app->request->cookies->getValue('taste')"),
    "visitor": ("yii2", BOOTSTRAP, "$app->params['returns'] = $app->session->hasSessionId"),
    "configured": ("yii2", BOOTSTRAP, "$app->request->enableCsrfValidation = false"),
    "address": ("yii2", BOOTSTRAP, "$app->params['office'] = str_starts_with((string) $app->request->remoteIP, '10.')"),
    "query": ("yii2", BOOTSTRAP, "$app->params['query'] = $app->request->queryString"),
    "parameter": ("yii2", BOOTSTRAP, "$app->params['lang'] = $app->request->get('lang')"),
    "credentials": ("yii2", BOOTSTRAP, "$app->params['who'] = $app->request->authCredentials"),
    "port": ("yii2", BOOTSTRAP, "$app->params['port'] = $app->request->serverPort"),
    "kept": ("yii2", BOOTSTRAP, "$app->params['request'] = $app->request"),
    "handler": ("yii2", BOOTSTRAP, "$app->request->on('any', static fn () => null)"),
    "header": ("yii2", BOOTSTRAP, "$app->response->headers->set('X-Nonce', 'n')"),
    "nonce": ("yii2", BOOTSTRAP, "$app->params['nonce'] = $app->security->generateRandomString()"),
    "service": ("laminas", MODULE, "$event->getApplication()->getServiceManager()->get('Request')->getHeader('Accept-Language')"),
    "event": ("laminas", MODULE, "$event->getParam('request')->getHeader('Accept-Language')"),
    "method by name": ("laminas", MODULE, "$get = 'getReq'.'uest'; $event->$get()->getHeader('Accept-Language')"),
    "kept by module": ("laminas", MODULE, "static $kept; $get = 'getReq'.'uest'; $kept = $event->$get()"),
    "made": ("laminas", ("module/Application/config/module.config.php", "getenv('SHOP_NAME')", "getenv('SHOP_NAME').(%s)"), "new \\Laminas\\Http\\PhpEnvironment\\Request)->getQuery('shop', ''"),
    "environment": ("cakephp", CAKE, "\\Cake\\Core\\Configure::write('tenant', env('HTTP_X_TENANT'))"),
    "factory": ("cakephp", CAKE, "$make = 'from'.'Globals'; \\Cake\\Http\\ServerRequestFactory::$make()->getCookie('lang')"),
    "helper": ("codeigniter", IGNITER, "helper('cookie'); $get = 'get_'.'cookie'; $this->log = $get('log') === null"),
    "environment by name": ("codeigniter", IGNITER, "$get = 'env'; $this->log = $get(implode('_', ['HTTP', 'X', 'LOG'])) === null"),
}


CHANGES = [pytest.param(name, change, id=f"{name}-{what}") for what, all in (("development", DEVELOPS), ("request", LOOKS)) for name, change in all.items()]
CHANGES += [pytest.param(name, (file, old, new % code), id=f"{name}-{what}") for what, (name, (file, old, new), code) in BOOTSTRAPS.items()]


@pytest.mark.parametrize(("framework", "change"), CHANGES, indirect=["framework"], scope="module")
def test_otherwise_it_is_served_in_classic_mode(make: Callable[[pathlib.Path], Site], change: tuple[str, str, str]) -> None:
    directory = temporary_directory("apps")
    try:
        site = make(directory)
        file, old, new = change
        text = (site.root / file).read_text() if old else ""
        assert old in text
        (site.root / file).write_text(text.replace(old, new, 1))
        if (config := site.root / "config/application.config.php").is_file():
            # Who comes first would fill Laminas' own cache for all, under php-fpm too: here the requests that fill OPcache.
            config.write_text(config.read_text().replace("'config_cache_enabled' => true", "'config_cache_enabled' => false"))
        with Hayate(site.root, workers=1, user=USER, ini=site.ini, args=["--env", f"SHOP_NAME={SHOP}"]) as hayate:
            (app,) = hayate.status()["apps"]
            assert app["mode"] == "classic", hayate.log()
            assert re.search("in debug mode|depends on the request|looks at the request", hayate.log())
    finally:
        shutil.rmtree(directory, ignore_errors=True)


#: A request of the project's own, which keeps something to itself.
OWN = """<?php

namespace app\\components;

class Request extends \\yii\\web\\Request
{
    private ?string $seen = null;
    private \\stdClass $helper;

    public function init(): void
    {
        parent::init();
        $this->helper = new \\stdClass();
    }

    public function setSeen(string $what): void
    {
        $this->seen = $what;
    }

    public function getSeen(): ?string
    {
        return $this->seen;
    }
}
"""


@pytest.mark.parametrize("framework", ["yii2"], indirect=True, scope="module")
@pytest.mark.parametrize(("does", "mode"), [("null", "worker"), ("$app->request->seen = 'a'", "classic"), ("$app->params['seen'] = $app->request->seen", "classic")])
def test_a_request_of_the_projects_own(make: Callable[[pathlib.Path], Site], does: str, mode: str) -> None:
    directory = temporary_directory("apps")
    try:
        site = make(directory)
        file, old, new = BOOTSTRAP
        config = site.root / file
        text = config.read_text().replace(old, new % does, 1)
        config.write_text(text.replace("'request' => [", "'request' => ['class' => 'app\\components\\Request', ", 1))
        (site.root / "components").mkdir(exist_ok=True)
        (site.root / "components/Request.php").write_text(OWN)
        with Hayate(site.root, workers=1, user=USER, ini=site.ini, args=["--env", f"SHOP_NAME={SHOP}"]) as hayate:
            assert Browser(hayate.url).get("/people/ada").status == 200
            (app,) = hayate.status()["apps"]
            assert app["mode"] == mode, hayate.log()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
