//! Recognises a project that Hayate's own boot scripts (php/boot/) can run, with no file added to it.
//!
//! The scripts of Symfony and Laravel take the place of `public/index.php`, so this is strict: it must be a project whose front
//! controller does nothing but start the framework. Those of the others run it, up to the method that handles a request; so it
//! must end there; the host sees whether it looks at a request before. Whatever is in doubt is not recognised, and runs in classic
//! mode as php-fpm would run it. Only files are read here; no PHP runs.

mod context;
mod debug;
mod front_controllers;
mod requests;
mod source;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::{
    context::asks_of_context,
    debug::{cakephp_debug, codeigniter_debug, laminas_debug, laravel_debug, symfony_debug, yii_debug},
    front_controllers::{
        LARAVEL, SYMFONY, compact_file, ends_with, ends_with_run, line_in, only, suits_runtime,
    },
    requests::{CAKEPHP_TRUSTS, no_request_in, no_request_in_modules},
    source::Sources,
};
use crate::composer;

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

/// In the order in which they are tried: Slim's projects have least that others have not.
const KNOWN: [Framework; 9] = [
    Framework::Laravel,
    Framework::Symfony,
    Framework::Lumen,
    Framework::CodeIgniter,
    Framework::CakePhp,
    Framework::Yii,
    Framework::Mezzio,
    Framework::Laminas,
    Framework::Slim,
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
    /// Nobody knows: composer.json is there, and cannot be read. The reason.
    Unreadable(String),
    /// One, but its boot script would not do what the project's own front controller does.
    Unsuited(String),
    /// One that can be run.
    Recognised(Recognised),
}

/// Looks at the project in `root`. `env` is the environment that PHP will have.
pub fn look(root: &Path, document_root: &Path, env: &[(String, String)]) -> Finding {
    let (frameworks, composer) = match required(root) {
        Ok(found) => found,
        Err(why) => {
            return Finding::Unreadable(format!(
                "{why}; so whether this is a framework's project is not known, and it is served in classic mode. Correct the file \
                 (composer validate)"
            ));
        }
    };
    let mut unsuited: Vec<String> = Vec::new();
    let mut sources = Sources::new(root);
    for framework in &frameworks {
        match examine(*framework, root, document_root, env, &composer, &mut sources) {
            Ok(mut recognised) => {
                let others = frameworks.iter().filter(|other| *other != framework);
                let others: Vec<&str> = others.map(|other| other.package()).collect();
                if !others.is_empty() {
                    recognised.evidence +=
                        &format!("; it requires {} as well, which is not looked at", others.join(" and "));
                }
                return Finding::Recognised(recognised);
            }
            Err(why) if unsuited.is_empty() => {
                unsuited.push(format!("this is a {framework} project, but {why}"));
            }
            Err(why) => unsuited.push(format!("it requires {} as well, but {why}", framework.package())),
        }
    }
    if unsuited.is_empty() { Finding::Nothing } else { Finding::Unsuited(unsuited.join("; ")) }
}

/// The frameworks that composer.json requires, in the order in which they are tried, and composer.json. `Err`: it is there and cannot be read.
fn required(root: &Path) -> Result<(Vec<Framework>, Value), String> {
    let composer = composer::read(root, "composer.json")?.unwrap_or_default();
    let frameworks = KNOWN.into_iter().filter(|framework| composer::requires(&composer, framework.package()));
    Ok((frameworks.collect(), composer))
}

/// The document root below a project's root that its framework gives it, where that is not `public`. `Err`: there may be one, but
/// composer.json, which would say so, cannot be read; the project's own files must not be published by that.
pub fn document_root(root: &Path) -> Result<Option<&'static str>, String> {
    let name = |framework: Framework| Some(framework.document_root()).filter(|name| *name != "public");
    let is_one = |name: &&'static str| root.join(name).join("index.php").is_file();
    match required(root) {
        Ok((frameworks, _)) => Ok(frameworks.into_iter().filter_map(name).find(is_one)),
        Err(why) => match KNOWN.into_iter().filter_map(name).find(is_one) {
            Some(name) => Err(format!(
                "{why}; so whether {name}/ or the whole directory is to be served is not known: correct that file (composer validate), \
                 or write document_root = \"{name}\""
            )),
            None => Ok(None),
        },
    }
}

fn examine(
    framework: Framework,
    root: &Path,
    document_root: &Path,
    env: &[(String, String)],
    composer: &Value,
    sources: &mut Sources,
) -> Result<Recognised, String> {
    if let Some(missing) = framework.files().iter().find(|file| !root.join(file).is_file()) {
        return Err(format!("it has no {missing}"));
    }
    let public = framework.document_root();
    if root.join(public).canonicalize().ok().as_deref() != Some(document_root) {
        return Err(format!("its document root is not {public}/"));
    }
    if root.join(public).join(".user.ini").exists() {
        return Err(format!(
            "{public}/.user.ini has settings for its scripts, which classic mode alone applies; move them to [app.ini], and delete it"
        ));
    }
    let front_controller = compact_file(root, &format!("{public}/index.php"))?;
    let from_env = |key: &str| env.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let (evidence, debug) = match framework {
        Framework::Laravel => {
            only(&front_controller, &LARAVEL)?;
            ("public/index.php starts the application and nothing else", laravel_debug(root, &from_env))
        }
        Framework::Symfony if front_controller.contains("/vendor/autoload_runtime.php") => {
            let closure = suits_runtime(&front_controller)?;
            if let Some((at, what)) = asks_of_context(&front_controller, closure) {
                let line = line_in(root, "public/index.php", at);
                return Err(format!(
                    "its public/index.php:{line} may ask for what a request brings ({what}), and it runs once, before there is one. To \
                     avoid it: give the kernel $context['NAME'] of names that are the environment's"
                ));
            }
            if from_env("APP_RUNTIME").is_some() || composer.pointer("/extra/runtime/class").is_some() {
                return Err("it names a runtime of its own".into());
            }
            if !root.join("vendor/autoload_runtime.php").is_file() {
                return Err("it has no vendor/autoload_runtime.php".into());
            }
            ("public/index.php returns the kernel to symfony/runtime", symfony_debug(root, &from_env))
        }
        Framework::Symfony => {
            only(&front_controller, &SYMFONY)?;
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
            // These are read for each request.
            no_request_in(sources, "app/Config", &["Events.php", "Routes.php", "Routes"])?;
            ("public/index.php ends with Boot::bootWeb()", codeigniter_debug(root, &from_env))
        }
        Framework::CakePhp => {
            let end = ["$server->emit($server->run());"];
            ends_with(&front_controller, "->run(", &end, end[0])?;
            let bootstrap = sources.text("config/bootstrap.php")?.unwrap_or_default();
            let refuses = root.join("src/Middleware/HostHeaderMiddleware.php").is_file();
            if bootstrap.contains("$trustProxy=true") || (bootstrap.contains(CAKEPHP_TRUSTS) && !refuses) {
                return Err("its config/bootstrap.php trusts X-Forwarded-Proto; leave that to trusted_proxies, or set \
                            App.fullBaseUrl and delete it"
                    .into());
            }
            // Routes are read for each request, the others by commands.
            no_request_in(sources, "config", &["routes.php", "routes", "Migrations", "Seeds"])?;
            ("webroot/index.php ends with $server->emit($server->run())", cakephp_debug(root, &from_env))
        }
        Framework::Yii => {
            let end = [
                "(new yii\\web\\Application($config))->run();",
                "(new \\yii\\web\\Application($config))->run();",
                "(new Application($config))->run();",
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
            no_request_in_modules(sources)?;
            ("public/index.php ends with run()", laminas_debug(root))
        }
    };
    // A lock that cannot be read costs the version's name here; what else it costs, the check of extensions says.
    let lock = composer::read(root, "composer.lock").ok().flatten().unwrap_or_default();
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

#[cfg(test)]
#[path = "framework/tests.rs"]
mod tests;
