//! Recognises a project that Hayate's own boot scripts (php/boot/) can run, with no file added to it.
//!
//! The scripts of Symfony and Laravel take the place of `public/index.php`, so this is strict: it must be a project whose front
//! controller does nothing but start the framework. Those of the others run it, up to the method that handles a request; so it
//! must end there; the host sees whether it looks at a request before. Whatever is in doubt is not recognised, and runs in classic
//! mode as php-fpm would run it. Only files are read here; no PHP runs.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{extensions, of_application};

/// A framework that there is a boot script for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Framework {
    /// Symfony, with symfony/runtime or without.
    Symfony,
    /// Laravel.
    Laravel,
    /// Lumen.
    Lumen,
    /// Slim 3 and 4.
    Slim,
    /// CodeIgniter 4, of 4.5 and later.
    CodeIgniter,
    /// CakePHP 5.
    CakePhp,
    /// Yii 2.
    Yii,
    /// Mezzio 3.
    Mezzio,
    /// Laminas MVC 3.
    Laminas,
}

const KNOWN: [Framework; 9] = [
    Framework::Laravel,
    Framework::Symfony,
    Framework::Lumen,
    Framework::Slim,
    Framework::CodeIgniter,
    Framework::CakePhp,
    Framework::Yii,
    Framework::Mezzio,
    Framework::Laminas,
];

impl Framework {
    fn package(self) -> &'static str {
        match self {
            Framework::Symfony => "symfony/framework-bundle",
            Framework::Laravel => "laravel/framework",
            Framework::Lumen => "laravel/lumen-framework",
            Framework::Slim => "slim/slim",
            Framework::CodeIgniter => "codeigniter4/framework",
            Framework::CakePhp => "cakephp/cakephp",
            Framework::Yii => "yiisoft/yii2",
            Framework::Mezzio => "mezzio/mezzio",
            Framework::Laminas => "laminas/laminas-mvc",
        }
    }

    /// The directory of its front controller.
    fn document_root(self) -> &'static str {
        match self {
            Framework::CakePhp => "webroot",
            Framework::Yii => "web",
            _ => "public",
        }
    }

    /// Files that each project of this kind has.
    fn files(self) -> &'static [&'static str] {
        match self {
            Framework::Symfony => {
                &["bin/console", "public/index.php", "src/Kernel.php", "vendor/autoload.php"]
            }
            Framework::Laravel => {
                &["artisan", "bootstrap/app.php", "public/index.php", "vendor/autoload.php"]
            }
            Framework::Lumen => &["bootstrap/app.php", "public/index.php", "vendor/autoload.php"],
            Framework::Slim => &["public/index.php", "vendor/autoload.php"],
            Framework::CodeIgniter => {
                &["spark", "app/Config/Paths.php", "public/index.php", "vendor/autoload.php"]
            }
            Framework::CakePhp => &[
                "bin/cake",
                "config/bootstrap.php",
                "src/Application.php",
                "webroot/index.php",
                "vendor/autoload.php",
            ],
            Framework::Yii => &["yii", "web/index.php", "vendor/autoload.php"],
            Framework::Mezzio => {
                &["config/container.php", "config/pipeline.php", "public/index.php", "vendor/autoload.php"]
            }
            Framework::Laminas => {
                &["config/application.config.php", "public/index.php", "vendor/autoload.php"]
            }
        }
    }

    /// Name of its script in php/boot/.
    fn script(self) -> &'static str {
        match self {
            Framework::Symfony => "symfony.php",
            Framework::Laravel => "laravel.php",
            Framework::Lumen | Framework::Slim | Framework::Mezzio => "front_controller.php",
            Framework::CodeIgniter => "codeigniter.php",
            Framework::CakePhp => "cakephp.php",
            Framework::Yii => "yii.php",
            Framework::Laminas => "laminas.php",
        }
    }

    /// The method up to which the project's own front controller boots it: what handles a request. `None`: its script starts the
    /// framework by itself.
    pub fn run(self) -> Option<&'static str> {
        match self {
            Framework::Symfony | Framework::Laravel => None,
            Framework::Lumen => Some("Laravel\\Lumen\\Concerns\\RoutesRequests::run"),
            Framework::Slim => Some("Slim\\App::run"),
            Framework::CodeIgniter => Some("CodeIgniter\\CodeIgniter::run"),
            Framework::CakePhp => Some("Cake\\Http\\Server::run"),
            Framework::Yii => Some("yii\\base\\Application::run"),
            Framework::Mezzio => Some("Mezzio\\Application::run"),
            Framework::Laminas => Some("Laminas\\Mvc\\Application::run"),
        }
    }
}

impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Framework::CakePhp => f.write_str("CakePHP"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// A project that a boot script can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recognised {
    /// Which.
    pub framework: Framework,
    /// As composer.lock says.
    pub version: Option<String>,
    /// By what, for people.
    pub evidence: String,
    /// Why it is in debug mode, if it is: then its owner wants to see each change of the code at once.
    pub debug: Option<String>,
}

impl Recognised {
    /// `Symfony 6.4.1`
    pub fn name(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.framework),
            None => self.framework.to_string(),
        }
    }

    /// Where its boot script lies: `boot/` beside this program (as `make build` puts it), or share/hayate/boot.
    pub fn boot_script(&self) -> Result<PathBuf, String> {
        let name = self.framework.script();
        let this = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
        let beside = this.parent().unwrap_or(Path::new("/"));
        let mut places = vec![beside.join("boot"), beside.join("../share/hayate/boot")];
        // Not in a server that tests start: one that finds its scripts in the source would hide that they were not installed.
        if cfg!(test) {
            places.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../php/boot"));
        }
        places.into_iter().find_map(|place| place.join(name).canonicalize().ok()).ok_or_else(|| {
            format!(
                "the boot script {name} is neither in {0}/boot nor in {0}/../share/hayate/boot; install Hayate anew, or copy its \
                 php/boot there",
                beside.display()
            )
        })
    }
}

/// What a look at a project finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// No framework that Hayate knows.
    Nothing,
    /// One, but its boot script would not do what the project's own front controller does.
    Unsuited(String),
    /// One that can be run.
    Recognised(Recognised),
}

/// Looks at the project in `root`. `env` is the environment that PHP will have.
pub fn look(root: &Path, document_root: &Path, env: &[(String, String)]) -> Finding {
    let Some((framework, composer)) = required(root) else { return Finding::Nothing };
    match examine(framework, root, document_root, env, &composer) {
        Ok(recognised) => Finding::Recognised(recognised),
        Err(why) => Finding::Unsuited(format!("this is a {framework} project, but {why}")),
    }
}

/// The first framework that composer.json requires, and composer.json.
fn required(root: &Path) -> Option<(Framework, Value)> {
    let composer = json(&root.join("composer.json"))?;
    let all = composer.get("require")?;
    let framework = KNOWN.into_iter().find(|framework| all.get(framework.package()).is_some())?;
    Some((framework, composer))
}

/// The document root below a project's root that its framework gives it, where that is not `public`.
pub fn document_root(root: &Path) -> Option<&'static str> {
    let name = required(root)?.0.document_root();
    (name != "public" && root.join(name).join("index.php").is_file()).then_some(name)
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&of_application::read(path, extensions::LARGEST).ok()?).ok()
}

fn examine(
    framework: Framework,
    root: &Path,
    document_root: &Path,
    env: &[(String, String)],
    composer: &Value,
) -> Result<Recognised, String> {
    if let Some(missing) = framework.files().iter().find(|file| !root.join(file).is_file()) {
        return Err(format!("it has no {missing}"));
    }
    let public = framework.document_root();
    if root.join(public).canonicalize().ok().as_deref() != Some(document_root) {
        return Err(format!("its document root is not {public}/"));
    }
    let front_controller = compact_file(root, &format!("{public}/index.php"))?;
    let from_env = |key: &str| env.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let (evidence, debug) = match framework {
        Framework::Laravel => {
            only(&front_controller, LARAVEL)?;
            ("public/index.php starts the application and nothing else", laravel_debug(root, &from_env))
        }
        Framework::Symfony if front_controller.contains("/vendor/autoload_runtime.php") => {
            suits_runtime(&front_controller)?;
            if from_env("APP_RUNTIME").is_some() || composer.pointer("/extra/runtime/class").is_some() {
                return Err("it names a runtime of its own".into());
            }
            if !root.join("vendor/autoload_runtime.php").is_file() {
                return Err("it has no vendor/autoload_runtime.php".into());
            }
            ("public/index.php returns the kernel to symfony/runtime", symfony_debug(root, &from_env))
        }
        Framework::Symfony => {
            only(&front_controller, SYMFONY)?;
            ("public/index.php starts App\\Kernel and nothing else", symfony_debug(root, &from_env))
        }
        Framework::Lumen | Framework::Slim => {
            ends_with_run(&front_controller)?;
            let debug = match framework {
                Framework::Lumen => laravel_debug(root, &from_env),
                _ => None,
            };
            ("public/index.php ends with run()", debug)
        }
        Framework::CodeIgniter => {
            let end = ["exit(Boot::bootWeb($paths));", "exit(CodeIgniter\\Boot::bootWeb($paths));"];
            ends_with(&front_controller, "Boot::bootWeb(", &end, "exit(Boot::bootWeb($paths))")?;
            // Both are read for each request.
            no_request_in(root, "app/Config", &["Events.php", "Routes.php"])?;
            no_request_in(root, "app/Config/Boot", &[])?;
            ("public/index.php ends with Boot::bootWeb()", codeigniter_debug(root, &from_env))
        }
        Framework::CakePhp => {
            let end = ["$server->emit($server->run());"];
            ends_with(&front_controller, "->run(", &end, end[0])?;
            let bootstrap = compact_file(root, "config/bootstrap.php")?;
            if bootstrap.contains("$trustProxy=true") {
                return Err("its config/bootstrap.php trusts X-Forwarded-Proto ($trustProxy); leave that to trusted_proxies, or set \
                            App.fullBaseUrl and delete it"
                    .into());
            }
            // Routes are read for each request.
            no_request_in(root, "config", &["routes.php"])?;
            ("webroot/index.php ends with $server->emit($server->run())", cakephp_debug(root, &from_env))
        }
        Framework::Yii => {
            let end = [
                "(newyii\\web\\Application($config))->run();",
                "(new\\yii\\web\\Application($config))->run();",
                "(newApplication($config))->run();",
            ];
            ends_with(&front_controller, "->run(", &end, "(new yii\\web\\Application($config))->run()")?;
            ("web/index.php ends with run()", yii_debug(&front_controller))
        }
        Framework::Mezzio => {
            ends_with(&front_controller, "->run(", &["$app->run();})();", "$app->run();"], "$app->run()")?;
            ("public/index.php ends with run()", laminas_debug(root))
        }
        Framework::Laminas => {
            let end = [
                "$app->run();",
                "$container->get('Application')->run();",
                "Application::init($appConfig)->run();",
                "Application::init($applicationConfig)->run();",
            ];
            ends_with(&front_controller, "->run(", &end, "$app->run()")?;
            no_request_in_modules(root)?;
            ("public/index.php ends with run()", laminas_debug(root))
        }
    };
    let lock = json(&root.join("composer.lock")).unwrap_or_default();
    let mut packages = lock.get("packages").and_then(Value::as_array).into_iter().flatten();
    let version = packages
        .find(|package| package["name"] == framework.package())
        .and_then(|package| Some(package["version"].as_str()?.trim_start_matches('v').to_owned()));
    let package = framework.package();
    Ok(Recognised {
        framework,
        version,
        evidence: format!("composer.json requires {package}, {evidence}"),
        debug,
    })
}

fn compact_file(root: &Path, file: &str) -> Result<String, String> {
    let text = of_application::read_text(&root.join(file), of_application::MOST);
    text.map(|text| compact(&text)).map_err(|error| format!("{file} cannot be read: {error}"))
}

/// PHP source without comments and without white space outside of strings.
fn compact(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source.strip_prefix("<?php").unwrap_or(source);
    while let Some(c) = rest.chars().next() {
        let comment_to = if rest.starts_with("//") || (c == '#' && !rest.starts_with("#[")) {
            Some("\n")
        } else if rest.starts_with("/*") {
            Some("*/")
        } else {
            None
        };
        if let Some(end) = comment_to {
            rest = rest.split_once(end).map_or("", |(_, after)| after);
        } else if c == '\'' || c == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|d: char| {
                let ends = d == c && !escaped;
                escaped = d == '\\' && !escaped;
                ends
            });
            let (string, after) = rest.split_at(end.map_or(rest.len(), |at| at + 2));
            out.push_str(string);
            rest = after;
        } else {
            if !c.is_whitespace() {
                out.push(c);
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Statements of the front controllers that Laravel 8 to 13 come with, compact.
const LARAVEL: &[&str] = &[
    "define('LARAVEL_START',microtime(true));",
    "if(file_exists($maintenance=__DIR__.'/../storage/framework/maintenance.php')){require$maintenance;}",
    "if(file_exists(__DIR__.'/../storage/framework/maintenance.php')){require__DIR__.'/../storage/framework/maintenance.php';}",
    "require__DIR__.'/../vendor/autoload.php';",
    "$app=require_once__DIR__.'/../bootstrap/app.php';",
    "$kernel=$app->make(Kernel::class);",
    "$kernel=$app->make(Illuminate\\Contracts\\Http\\Kernel::class);",
    "$response=$kernel->handle($request=Request::capture())->send();",
    "$response=$kernel->handle($request=Request::capture());",
    "$response=$kernel->handle($request=Illuminate\\Http\\Request::capture());",
    "$response=tap($kernel->handle($request=Request::capture()))->send();",
    "$response->send();",
    "$kernel->terminate($request,$response);",
    "(require_once__DIR__.'/../bootstrap/app.php')->handleRequest(Request::capture());",
    "$app->handleRequest(Request::capture());",
];

/// Those of Symfony's without symfony/runtime.
const SYMFONY: &[&str] = &[
    "requiredirname(__DIR__).'/vendor/autoload.php';",
    "require_oncedirname(__DIR__).'/vendor/autoload.php';",
    "(newDotenv())->bootEnv(dirname(__DIR__).'/.env');",
    "if($_SERVER['APP_DEBUG']){umask(0000);Debug::enable();}",
    "if($_SERVER['APP_DEBUG']){umask(0000);if(class_exists(Debug::class)){Debug::enable();}}",
    "$kernel=newKernel($_SERVER['APP_ENV'],(bool)$_SERVER['APP_DEBUG']);",
    "$kernel=newKernel($_SERVER['APP_ENV']??'prod',(bool)($_SERVER['APP_DEBUG']??false));",
    "$request=Request::createFromGlobals();",
    "$response=$kernel->handle($request);",
    "$response->send();",
    "$kernel->terminate($request,$response);",
];

/// Whether a front controller consists of these statements, imports and declarations only.
fn only(compacted: &str, statements: &[&str]) -> Result<(), String> {
    let mut rest = compacted.trim_end_matches("?>");
    while !rest.is_empty() {
        let statement = statements.iter().find(|statement| rest.starts_with(**statement)).copied();
        let statement = statement.or_else(|| {
            let one = &rest[..=rest.find(';')?];
            let imports = one.starts_with("use") && !one.contains(['(', '=', '$', '\'']);
            (imports || one == "declare(strict_types=1);").then_some(one)
        });
        match statement {
            Some(statement) => rest = &rest[statement.len()..],
            None => {
                let start: String = rest.chars().take(60).collect();
                return Err(format!("its public/index.php does more than to start it ({start} …)"));
            }
        }
    }
    Ok(())
}

/// What a front controller mentions that depends on the request; it runs once, before the first.
const OF_A_REQUEST: [&str; 21] = [
    "$_GET",
    "$_POST",
    "$_COOKIE",
    "$_REQUEST",
    "$_FILES",
    "$_SESSION",
    "HTTP_",
    "REQUEST_",
    "REMOTE_",
    "SERVER_",
    "QUERY_STRING",
    "PATH_INFO",
    "['HTTPS']",
    "php://input",
    "createFromGlobals",
    "header(",
    "setcookie(",
    "session_",
    "ob_start",
    "exit",
    "die(",
];

/// Whether a front controller of symfony/runtime can run before there is a request. It is run as it is, so it may do other things.
fn suits_runtime(compacted: &str) -> Result<(), String> {
    if let Some(word) = OF_A_REQUEST.iter().find(|word| compacted.contains(**word)) {
        return Err(format!("its public/index.php depends on the request ({word})"));
    }
    let closure = ["return", "returnstatic"]
        .iter()
        .flat_map(|start| ["function", "fn"].map(|f| format!("{start}{f}(array$context)")));
    if !closure.into_iter().any(|closure| compacted.contains(&closure)) {
        return Err("its public/index.php returns no closure that takes an array $context alone".into());
    }
    Ok(())
}

/// Whether a front controller ends with `$app->run();`, which it calls nowhere else. Whether it looks at a request before, the host
/// sees as it runs it.
fn ends_with_run(compacted: &str) -> Result<(), String> {
    let code = compacted.trim_end_matches("?>");
    let last = code.strip_suffix("->run();").and_then(|before| before.rsplit_once('$'));
    let is_variable =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match last {
        Some((before, name))
            if is_variable(name) && before.ends_with([';', '}']) && !before.contains("->run(") =>
        {
            Ok(())
        }
        _ => Err("its public/index.php does not end with $app->run(), called once".into()),
    }
}

/// Whether a front controller ends with one of these, and does the like nowhere else.
fn ends_with(compacted: &str, call: &str, ends: &[&str], readable: &str) -> Result<(), String> {
    let code = compacted.trim_end_matches("?>");
    let before = ends.iter().find_map(|end| code.strip_suffix(end));
    match before {
        Some(before) if before.ends_with([';', '}']) && !before.contains(call) => Ok(()),
        _ => Err(format!("its front controller does not end with {readable}, called once")),
    }
}

/// What CakePHP's config/bootstrap.php comes with: without a request it does nothing, and each request gets the same answer by itself.
const CAKEPHP: &[&str] = &[
    "if(env('HTTPS')||($trustProxy&&env('HTTP_X_FORWARDED_PROTO')==='https')){$s='s';}",
    "if(env('HTTPS')){$s='s';}",
    "$httpHost=env('HTTP_HOST');",
];

/// By what configuration asks for a variable of a request, in classes and functions as well.
const ASKS: [&str; 2] = ["$_SERVER['", "env('"];
/// How such variables begin.
const OF_SERVER: [&str; 11] = [
    "HTTP",
    "REMOTE_",
    "SERVER_",
    "REQUEST_",
    "QUERY_STRING",
    "PATH_INFO",
    "PHP_SELF",
    "PHP_AUTH",
    "SCRIPT",
    "DOCUMENT_URI",
    "CONTENT_",
];
/// What else is of a request, or is otherwise where there is none. A name that is made at run time may be any.
const IN_CONFIGURATION: [&str; 23] = [
    "$_GET",
    "$_POST",
    "$_COOKIE",
    "$_REQUEST",
    "$_FILES",
    "$_SESSION",
    "$GLOBALS",
    "INPUT_",
    "php://input",
    "getallheaders(",
    "apache_request_headers(",
    "getenv()",
    "env($",
    "is_cli(",
    "isCLI(",
    "request(",
    "session(",
    "session_start(",
    "service('request'",
    "service('session'",
    "current_url(",
    "uri_string(",
    "createFromGlobals(",
];

/// What a configuration file, compact, wants to know of a request.
fn asks_for_request(text: &str) -> Option<String> {
    let text = text.replace('"', "'");
    let word = IN_CONFIGURATION.iter().find(|word| text.contains(**word)).map(|word| (*word).to_owned());
    let word = word.or_else(|| {
        let asked = ASKS.iter().flat_map(|asks| OF_SERVER.map(|name| format!("{asks}{name}")));
        asked.into_iter().find(|asked| text.contains(asked.as_str()))
    });
    // Whoever has all of it, or picks by a variable, may take whatever a request brings.
    let is_picked = |rest: &str| rest.starts_with("['");
    let whole = || text.split("$_SERVER").skip(1).any(|rest| !is_picked(rest));
    word.or_else(|| whole().then(|| "$_SERVER".to_owned()))
}

/// Whether configuration that is read before there is a request has nothing to do with one.
fn no_request_in(root: &Path, directory: &str, but: &[&str]) -> Result<(), String> {
    let files = match fs::read_dir(root.join(directory)) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{directory} cannot be read: {error}")),
    };
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(".php") && !but.contains(&&**name)).collect();
    names.sort();
    for name in names {
        let file = format!("{directory}/{name}");
        let text = compact_file(root, &file)?;
        let text = CAKEPHP.iter().fold(text, |text, known| text.replacen(known, "", 1));
        if let Some(word) = asks_for_request(&text) {
            return Err(format!("its {file} depends on the request ({word} …)"));
        }
    }
    Ok(())
}

/// By what a module of Laminas gets at the request or at a session.
const IN_MODULES: [&str; 5] =
    ["->getRequest(", "get('Request')", "getParam('request'", "session_start(", "->start("];

/// Whether the modules of a Laminas project, as they are bootstrapped, look at the request: it is an empty one then.
fn no_request_in_modules(root: &Path) -> Result<(), String> {
    let modules = fs::read_dir(root.join("module")).into_iter().flatten();
    let mut names: Vec<String> =
        modules.filter_map(|module| module.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        for file in [format!("module/{name}/src/Module.php"), format!("module/{name}/Module.php")] {
            let text = compact_file(root, &file).unwrap_or_default().replace('"', "'");
            let word = IN_MODULES.iter().find(|word| text.contains(**word));
            if let Some(word) = word.map(|word| (*word).to_owned()).or_else(|| asks_for_request(&text)) {
                return Err(format!("its {file} depends on the request ({word} …)"));
            }
        }
    }
    Ok(())
}

/// Why Mezzio and Laminas MVC will be in development mode.
fn laminas_debug(root: &Path) -> Option<String> {
    let development = root.join("config/development.config.php").is_file();
    development.then(|| "there is a config/development.config.php".to_owned())
}

/// The last value that a .env file gives to a variable. `Err`: it depends on others.
fn dotenv(path: &Path, key: &str) -> Result<Option<String>, ()> {
    let text = of_application::read_text(path, of_application::MOST).unwrap_or_default();
    let mut found = None;
    for line in text.lines() {
        let line = line.trim().strip_prefix("export ").unwrap_or(line.trim());
        let Some((name, value)) = line.split_once('=') else { continue };
        if name.trim() != key {
            continue;
        }
        let value = value.trim();
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split(quote).next().unwrap_or_default(),
            _ => value.split(" #").next().unwrap_or_default().trim(),
        };
        if value.contains('$') {
            return Err(());
        }
        found = Some(value.to_owned());
    }
    Ok(found)
}

fn is_false(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false" | "off" | "no" | "(false)" | "null")
}

/// Why Symfony will be in debug mode. In the order of its Dotenv: environment, .env.local.php, .env and its companions.
fn symfony_debug(root: &Path, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let unclear = || Some("it is not clear whether it runs in debug mode, .env computes that".to_owned());
    let dumped = of_application::read_text(&root.join(".env.local.php"), of_application::MOST);
    let dumped = dumped.map(|text| compact(&text)).ok();
    let read = |key: &str, files: &[String]| -> Result<Option<String>, ()> {
        if let Some(value) = env(key) {
            return Ok(Some(value));
        }
        if let Some(text) = &dumped {
            let start = format!("'{key}'=>'");
            return Ok(text
                .split_once(&start)
                .and_then(|(_, rest)| Some(rest.split_once('\'')?.0.to_owned())));
        }
        let mut found = None;
        for file in files {
            found = dotenv(&root.join(file), key)?.or(found);
        }
        Ok(found)
    };
    let Ok(name) = read("APP_ENV", &[".env".into(), ".env.local".into()]) else { return unclear() };
    let name = name.unwrap_or_else(|| "dev".into());
    let files = [".env".into(), ".env.local".into(), format!(".env.{name}"), format!(".env.{name}.local")];
    let Ok(debug) = read("APP_DEBUG", &files) else { return unclear() };
    match debug {
        Some(value) if is_false(&value) => None,
        Some(value) => Some(format!("APP_DEBUG is {value}")),
        None if name == "prod" => None,
        None => Some(format!("APP_ENV is {name}")),
    }
}

/// Why CodeIgniter will be in development mode: the environment or .env says so.
fn codeigniter_debug(root: &Path, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let name = env("CI_ENVIRONMENT")
        .map_or_else(|| dotenv(&root.join(".env"), "CI_ENVIRONMENT"), |value| Ok(Some(value)));
    match name {
        Ok(Some(name)) if name == "development" => Some("CI_ENVIRONMENT is development".into()),
        Ok(_) => None,
        Err(()) => Some("it is not clear whether it runs in development mode, .env computes that".into()),
    }
}

/// Why CakePHP will be in debug mode: the last of its configuration files that says something, and the environment where that asks it.
fn cakephp_debug(root: &Path, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    for file in ["config/app_local.php", "config/app.php"] {
        let text = compact_file(root, file).unwrap_or_default();
        let Some((_, value)) = text.split_once("'debug'=>") else { continue };
        let (by_default, asks) = match value {
            _ if value.starts_with("false,") => (false, false),
            _ if value.starts_with("true,") => (true, false),
            _ if value.starts_with("filter_var(env('DEBUG',false),FILTER_VALIDATE_BOOLEAN),") => {
                (false, true)
            }
            _ if value.starts_with("filter_var(env('DEBUG',true),FILTER_VALIDATE_BOOLEAN),") => (true, true),
            _ => return Some(format!("it is not clear whether it runs in debug mode, {file} computes that")),
        };
        let given = asks.then(|| env("DEBUG")).flatten();
        return match given {
            Some(value) if is_false(&value) => None,
            Some(value) => Some(format!("DEBUG is {value}")),
            None => by_default.then(|| format!("{file} says so")),
        };
    }
    None
}

/// Why Yii will be in debug mode: its front controller says so.
fn yii_debug(front_controller: &str) -> Option<String> {
    let (_, value) = front_controller.split_once("define('YII_DEBUG',")?;
    (!value.starts_with("false)")).then(|| "web/index.php defines YII_DEBUG".to_owned())
}

/// Why Laravel will be in debug mode: the environment or .env says so.
fn laravel_debug(root: &Path, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let named = env("APP_ENV").map(|name| format!(".env.{name}")).filter(|file| root.join(file).is_file());
    let file = root.join(named.unwrap_or_else(|| ".env".into()));
    let read = |key: &str| env(key).map_or_else(|| dotenv(&file, key), |value| Ok(Some(value)));
    let (Ok(debug), Ok(name)) = (read("APP_DEBUG"), read("APP_ENV")) else {
        return Some("it is not clear whether it runs in debug mode, .env computes that".into());
    };
    match debug {
        Some(value) if !is_false(&value) => Some(format!("APP_DEBUG is {value}")),
        _ if name.as_deref() == Some("local") => Some("APP_ENV is local".into()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "framework/tests.rs"]
mod tests;
