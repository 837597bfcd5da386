"""A recognised Symfony project: services of Symfony's own are made before the requests, nobody else's ever are.

The application's constructors look for the request and the time: a listener, a listener of Symfony's that it has
replaced by a class of its own, an extension of Twig. Made early, they would answer everybody for nobody.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import time
from collections.abc import Iterator

import pytest
import requests
from apps import sites
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate

HERE = pathlib.Path(__file__).parent / "symfony"
LISTENERS = "Symfony\\Component\\HttpKernel\\EventListener\\"


def site(directory: pathlib.Path, *, extension: bool) -> sites.Site:
    """The application of the tests, with services that look for the request in their constructors."""
    made = sites.unbuilt_symfony(directory)
    for name in ("FromRequest", "LocaleFromRequest"):
        shutil.copy(HERE / f"{name}.php", made.root / "src/EventListener")
    services = made.root / "config/services.php"
    last = "->tag('controller.service_arguments');\n"
    text = services.read_text()
    assert text.count(last) == 1
    locale = "App\\EventListener\\LocaleFromRequest"
    more = f"        ->remove(\\{locale}::class)->set('locale_listener', \\{locale}::class);\n"
    services.write_text(text.replace(last, last.replace(";", "") + more))
    if extension:
        shutil.copy(HERE / "HostExtension.php", made.root / "src")
        template = made.root / "templates/winds.html.twig"
        template.write_text(template.read_text().replace("<h1>Winds</h1>", "<h1>Winds of {{ host }}</h1>"))
    sites.build_symfony(made)
    return made


@pytest.fixture(scope="module", params=[True, False], ids=["twig-extended", "twig-own"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Hayate, bool]]:
    directory = temporary_directory("symfony")
    try:
        made = site(directory, extension=request.param)
        with sites.server("rewind", made, workers=1, warmup=("/winds", "/json", "/none")) as server:
            server.ready_since = time.monotonic()
            yield server, request.param
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def get(url: str, host: str, path: str = "/winds", locale: str = "en") -> requests.Response:
    return requests.get(url + path, headers={"Host": host, "X-Locale": locale}, timeout=60)


def test_constructors_of_the_application_see_the_request(served: tuple[Hayate, bool]) -> None:
    server, extension = served
    for host in ("one.example.org", "two.example.org", "one.example.org"):
        answer = get(server.url, host)
        assert answer.status_code == 200, answer.text
        assert answer.headers["X-Host"] == host
        # Not before the server was ready.
        assert 0 <= int(answer.headers["X-Made-Ms-Ago"]) <= (time.monotonic() - server.ready_since) * 1000
        assert (f"<h1>Winds of {host}</h1>" if extension else "<h1>Winds</h1>") in answer.text


def test_services_of_symfony_are_there_before(served: tuple[Hayate, bool]) -> None:
    server, _ = served
    there = get(server.url, "one.example.org").headers["X-Before"].split()
    assert LISTENERS + "RouterListener" in there
    assert LISTENERS + "ResponseListener" in there
    assert "Symfony\\Bundle\\SecurityBundle\\EventListener\\FirewallListener" in there
    assert not [name for name in there if not name.startswith("Symfony\\")]


def test_what_is_there_before_answers_as_ever(served: tuple[Hayate, bool]) -> None:
    server, _ = served
    assert get(server.url, "one.example.org", "/json").json() == {"status": "OK"}
    missing = get(server.url, "one.example.org", "/none")
    assert missing.status_code == 404 and missing.headers["X-Host"] == "one.example.org"
    broken = get(server.url, "two.example.org", "/broken")
    assert broken.status_code == 500 and broken.headers["X-Host"] == "two.example.org"
    (app,) = server.status()["apps"]
    assert sum(app["restarts"].values()) == 0 and app["rewind"]["rewinds"] > 0


def test_a_container_that_cannot_be_followed_costs_time_only() -> None:
    directory = temporary_directory("symfony")
    try:
        made = site(directory, extension=False)
        made.env["LATE_LISTENER"] = "1"
        with sites.server("rewind", made, workers=1, warmup=("/winds", "/json")) as server:
            answer = get(server.url, "one.example.org")
            assert answer.status_code == 200 and "<h1>Winds</h1>" in answer.text
            assert answer.headers["X-Host"] == "one.example.org"
            assert not [name for name in answer.headers["X-Before"].split() if not name.startswith("Symfony\\")]
            assert get(server.url, "two.example.org").headers["X-Host"] == "two.example.org"
            (app,) = server.status()["apps"]
            assert app["rewind"]["rewinds"] > 0 and app["fallback"] is None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


#: What services get as strings: by a processor or a loader of the application's own, of a variable that each request has, by a factory.
TENANT = """<?php
namespace App;

use Symfony\\Component\\DependencyInjection\\EnvVarLoaderInterface;
use Symfony\\Component\\DependencyInjection\\EnvVarProcessorInterface;
use Symfony\\Component\\HttpFoundation\\RequestStack;
use Symfony\\Component\\HttpKernel\\EventListener\\LocaleListener;

final class Tenant implements EnvVarProcessorInterface, EnvVarLoaderInterface
{
    public function __construct(private RequestStack $requests) {}
    public function getEnv(string $prefix, string $name, \\Closure $getEnv): mixed
    {
        return $this->requests->getMainRequest()?->getHost() ?? 'nobody';
    }
    public function listener(RequestStack $requests): LocaleListener
    {
        return new LocaleListener($requests, $this->requests->getMainRequest()?->headers->get('X-Locale') ?? 'nobody');
    }
    public function loadEnvVars(): array { return ['BY_LOADER' => $this->getEnv('', '', fn () => null)]; }
    public static function getProvidedTypes(): array { return ['tenant' => 'string']; }
}
"""
BY_FACTORY = """->tag('controller.service_arguments')
        ->set('locale_listener', \\Symfony\\Component\\HttpKernel\\EventListener\\LocaleListener::class)
        ->factory([service(\\App\\Tenant::class), 'listener']);"""
TRUSTED = "...(Kernel::VERSION_ID < 70200 ? [] : ['trusted_hosts' => [], 'trusted_proxies' => '', 'trust_x_sendfile_type_header' => false]), "
SHOWN = "<h1>Winds of {{ tenant }} at {{ uri }} in {{ app.request.locale }}</h1>"


@pytest.fixture
def directory() -> Iterator[pathlib.Path]:
    made = temporary_directory("symfony")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def given(directory: pathlib.Path, settings: str, services: str = "") -> sites.Site:
    """The application, with globals of Twig and more that come from the environment."""
    made = sites.unbuilt_symfony(directory)
    shutil.copy(HERE / "FromRequest.php", made.root / "src/EventListener")
    (made.root / "src/Tenant.php").write_text(TENANT)
    for file, old, new in (
        ("config/packages/twig.php", "'strict_variables'", f"'globals' => [{settings}], 'strict_variables'"),
        # Else Symfony 7.2 and later ask the environment for them as they boot, and so the loader.
        ("config/packages/framework.php", "'web_link'", f"{TRUSTED}'web_link'"),
        ("config/services.php", "->set('upload_dir'", "->set('none', 'none')->set('upload_dir'"),
        ("config/services.php", "->tag('controller.service_arguments');", services or "->tag('controller.service_arguments');"),
        ("templates/winds.html.twig", "<h1>Winds</h1>", SHOWN),
    ):
        text = (made.root / file).read_text()
        assert old in text, (file, old)
        (made.root / file).write_text(text.replace(old, new, 1))
    return made


@pytest.mark.parametrize(
    ("tenant", "uri"),
    [
        ("%env(tenant:HOST)%", "here"),
        ("%env(trim:default:none:tenant:HOST)%", "here"),
        ("%env(BY_LOADER)%", "here"),
        ("all", "%env(default:none:REQUEST_URI)%"),
    ],
)
def test_values_that_a_request_decides_are_each_requests_own(directory: pathlib.Path, tenant: str, uri: str) -> None:
    made = given(directory, f"'tenant' => '{tenant}', 'uri' => '{uri}'", services=BY_FACTORY)
    sites.build_symfony(made)
    with sites.server("rewind", made, workers=1, warmup=("/winds", "/json")) as server:
        for host, locale in (("one.example.org", "de"), ("two.example.org", "fr"), ("one.example.org", "fr")):
            answer = get(server.url, host, f"/winds?{locale}", locale)
            of, at = tenant if tenant == "all" else host, uri if uri == "here" else f"/winds?{locale}"
            assert f"<h1>Winds of {of} at {at} in {locale}</h1>" in answer.text
            there = answer.headers["X-Before"].split()
            assert LISTENERS + "RouterListener" in there and LISTENERS + "LocaleListener" not in there
        (app,) = server.status()["apps"]
        assert app["mode"] == "worker" and app["fallback"] is None


def test_values_of_the_environment_are_there_before(directory: pathlib.Path) -> None:
    settings = "'tenant' => '%env(resolve:DATABASE_URL)%', 'uri' => '%env(key:name:json:SETTINGS)%%env(bool:SHOWS)%%env(trim:file:NOTE)%%env(string:default:none:MISSING)%'"
    made = given(directory, settings)
    (made.root / "note").write_text("noted\n")
    text = (made.root / "config/packages/framework.php").read_text()
    (made.root / "config/packages/framework.php").write_text(
        text.replace("'web_link'", "'default_locale' => '%env(string:default:none:SITE_LOCALE)%', 'web_link'")
    )
    made.env.update(DATABASE_URL="sqlite:///%none%.db", SHOWS="yes", NOTE=str(made.root / "note"), SETTINGS='{"name": "Ada"}', SITE_LOCALE="nl")
    sites.build_symfony(made)
    with sites.server("rewind", made, workers=1, warmup=("/winds", "/json")) as server:
        answer = get(server.url, "one.example.org")
        assert "<h1>Winds of sqlite:///none.db at Ada1notednone in nl</h1>" in answer.text
        assert LISTENERS + "LocaleListener" in answer.headers["X-Before"].split()


def test_what_the_boot_itself_resolves_is_resolved_for_each_request(directory: pathlib.Path) -> None:
    made = given(directory, "'tenant' => 'all', 'uri' => ''")
    text = (made.root / "config/packages/framework.php").read_text()
    (made.root / "config/packages/framework.php").write_text(
        text.replace(TRUSTED, "'trusted_proxies' => '%env(tenant:HOST)%', 'trusted_headers' => ['forwarded'], ")
    )
    sites.build_symfony(made)
    with sites.server("rewind", made, workers=1) as server:
        assert get(server.url, "127.0.0.1").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and "resolves %env(tenant:HOST)%" in app["fallback"]["why"]


def test_a_loader_that_symfony_asks_as_it_boots_is_asked_for_each_request(directory: pathlib.Path) -> None:
    """Found with Symfony 8.1 on 2026-11-27: the log did not say what to do about it."""
    made = given(directory, "'tenant' => 'all', 'uri' => ''")
    file = made.root / "config/packages/framework.php"
    file.write_text(file.read_text().replace(TRUSTED, ""))
    sites.build_symfony(made)
    asks = "SYMFONY_TRUSTED_HOSTS" in pathlib.Path("/usr/share/php/Symfony/Bundle/FrameworkBundle/DependencyInjection/Configuration.php").read_text()
    with sites.server("rewind", made, workers=1) as server:
        assert get(server.url, "127.0.0.1").status_code == 200
        (app,) = server.status()["apps"]
        if asks:
            assert app["mode"] == "classic" and "what App\\Tenant loads" in app["fallback"]["why"]
            assert "set framework.trusted_hosts, .trusted_proxies and .trust_x_sendfile_type_header (" in app["fallback"]["why"]
        else:
            assert app["mode"] == "worker" and app["fallback"] is None


@pytest.mark.parametrize("warmup", [("/winds",), ("/json",)], ids=["warmed up", "not warmed up"])
def test_a_template_that_twig_looks_at_anew_may_change(directory: pathlib.Path, warmup: tuple[str, ...]) -> None:
    """`auto_reload` in production, as where customers edit templates: no template is there before the requests, listed for preloading or not."""
    made = sites.unbuilt_symfony(directory)
    twig, template = made.root / "config/packages/twig.php", made.root / "templates/winds.html.twig"
    twig.write_text(twig.read_text().replace("'strict_variables'", "'auto_reload' => true, 'strict_variables'"))
    os.utime(template, (1, 1))
    sites.build_symfony(made)
    with sites.server("rewind", made, workers=1, warmup=warmup) as server:
        assert "<h1>Winds</h1>" in get(server.url, "one.example.org").text
        template.write_text(template.read_text().replace("<h1>Winds</h1>", "<h1>Storms</h1>"))
        # OPcache looks at a file each second.
        assert wait_until(lambda: "<h1>Storms</h1>" in get(server.url, "one.example.org").text, 15), server.log()
        (app,) = server.status()["apps"]
        assert app["mode"] == "worker" and app["fallback"] is None
