"""Projects as Composer and the frameworks' skeletons would leave them, of the framework versions that Debian has."""

from __future__ import annotations

import pathlib
import shutil
import sqlite3

PROJECTS = pathlib.Path(__file__).with_name("projects")
DEBIAN = pathlib.Path("/usr/share/php")
#: What Symfony calls that which marks a route: 5.4 knows it by the old name only, 8 by the new one.
ROUTES = "Attribute" if (DEBIAN / "Symfony/Component/Routing/Attribute").exists() else "Annotation"
#: Symfony 6 asks Composer 2 which packages there are.
COMPOSER = pathlib.Path(__file__).parents[1] / "apps/symfony/vendor/composer/InstalledVersions.php"


def symfony(directory: pathlib.Path, *, runtime: bool) -> pathlib.Path:
    """Symfony with a front controller for symfony/runtime, or the one before it: 5.4 on Debian 12, 6.4 on Debian 13, 8.1 in experimental."""
    root = _copy("symfony", directory)
    # Symfony 8.1 uses the last one and does not say so.
    components = ["Bundle/FrameworkBundle", "Component/Dotenv", "Component/Runtime", "Component/String"]
    parts = [f"require_once '{DEBIAN}/Symfony/{component}/autoload.php';" for component in components]
    (root / "vendor/composer").mkdir(parents=True)
    shutil.copy(COMPOSER, root / "vendor/composer")
    parts.append("require_once __DIR__.'/composer/InstalledVersions.php';")
    _autoload(root, parts, "src")
    for file, old, new in (
        ("src/Controller/HomeController.php", "Annotation", ROUTES),
        ("config/routes.php", "annotation", ROUTES.lower()),
    ):
        path = root / file
        path.write_text(path.read_text().replace(old, new))
    if runtime:
        # As symfony/runtime's Composer plugin makes it.
        text = (DEBIAN / "Symfony/Component/Runtime/Internal/autoload_runtime.template").read_text()
        text = text.replace("%runtime_class%", r"'Symfony\\Component\\Runtime\\SymfonyRuntime'")
        text = text.replace("%runtime_options%", "['project_dir' => dirname(__DIR__, 1)]")
        (root / "vendor/autoload_runtime.php").write_text(text)
    else:
        shutil.move(root / "without_runtime.php", root / "public/index.php")
    return root


def laravel(directory: pathlib.Path) -> pathlib.Path:
    """Laravel: 8.83 on Debian 12, 10.48 on Debian 13, 13 in sid."""
    root = _copy("laravel", directory)
    _autoload(root, [f"require_once '{DEBIAN}/Illuminate/autoload.php';"], "app")
    with sqlite3.connect(root / "database.sqlite") as database:
        database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY)")
    for part in ["bootstrap/cache", "storage/framework/sessions", "storage/framework/views", "storage/logs"]:
        (root / part).mkdir(parents=True)
    return root


def provider(project: pathlib.Path, statements: str, argument: str = "") -> None:
    """Has a service provider of the Laravel application do that as it boots."""
    file = project / "app/Providers/AppServiceProvider.php"
    text = file.read_text()
    end = text.rindex("}")
    boot = f"\n    public function boot({argument}): void\n    {{\n{statements}\n    }}\n    public function never(): string\n    {{\n        return $_GET['never'];\n    }}\n"
    file.write_text(text[:end] + boot + text[end:])


def package(project: pathlib.Path, files: dict[str, str], provider: str | None = None) -> None:
    """Adds a package Acme with these files, a class each, and a provider of Laravel's that does this as it boots."""
    folder = project / "vendor/acme"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.php").write_text(f"<?php\n{'' if text.startswith('namespace ') else 'namespace Acme;'}\n{text}\n")
    autoload = project / "vendor/autoload.php"
    loader = (
        "spl_autoload_register(static function (string $class): void {\n"
        "    $file = __DIR__.'/acme/'.substr($class, 5).'.php';\n"
        "    if (str_starts_with($class, 'Acme\\\\') && is_file($file)) {\n        require $file;\n    }\n});\n"
    )
    autoload.write_text(autoload.read_text().replace("\nreturn ", f"\n{loader}\nreturn "))
    if provider is not None:
        text = f"class Provider extends \\Illuminate\\Support\\ServiceProvider {{ public function boot(): void {{ {provider} }} }}"
        (folder / "Provider.php").write_text(f"<?php\nnamespace Acme;\n{text}\n")
        config = project / "config/app.php"
        config.write_text(config.read_text().replace("'providers' => [", "'providers' => [\n        Acme\\Provider::class,", 1))


def _copy(name: str, directory: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(PROJECTS / name, directory / name))


def _autoload(root: pathlib.Path, parts: list[str], source: str) -> None:
    (root / "vendor").mkdir(exist_ok=True)
    app = (
        "spl_autoload_register(static function (string $class): void {\n"
        f"    $file = dirname(__DIR__).'/{source}/'.strtr(substr($class, 4), '\\\\', '/').'.php';\n"
        "    if (str_starts_with($class, 'App\\\\') && is_file($file)) {\n        require $file;\n    }\n});\n"
    )
    text = "<?php\n\n" + "\n".join(parts) + f"\n{app}\nreturn new stdClass();\n"
    (root / "vendor/autoload.php").write_text(text)
