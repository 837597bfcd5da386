//! Which PHP extensions an application asks for and does not get, for `hayate check`.
//!
//! Asked for are those that its composer.json and the packages of its composer.lock require (`ext-…`), and those that the configuration
//! itself loads. Only files are read. It warns and refuses nothing: as under php-fpm, an application may do without.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::Value;

use crate::{composer, terminal};

/// Debian's packages that bring more than the extension that they are called after.
const PACKAGES: [(&str, &[&str]); 7] = [
    ("xml", &["dom", "simplexml", "xml", "xmlreader", "xmlwriter", "xsl"]),
    ("mysql", &["mysqli", "mysqlnd", "pdo_mysql"]),
    ("pgsql", &["pgsql", "pdo_pgsql"]),
    ("sqlite3", &["sqlite3", "pdo_sqlite"]),
    ("odbc", &["odbc", "pdo_odbc"]),
    ("sybase", &["pdo_dblib"]),
    (
        "common",
        &[
            "calendar",
            "ctype",
            "exif",
            "ffi",
            "fileinfo",
            "ftp",
            "gettext",
            "iconv",
            "pdo",
            "phar",
            "posix",
            "shmop",
            "sockets",
            "sysvmsg",
            "sysvsem",
            "sysvshm",
            "tokenizer",
        ],
    ),
];

/// Lines that are shown.
const MOST: usize = 20;

/// One line for each extension that is asked for and not loaded.
///
/// `root` is the application's directory, `ini` its settings of php.ini, `loaded` what PHP has, `complaints` what it says as it starts,
/// `version` such as `8.4.28`.
pub fn missing(
    root: &Path,
    ini: &[(String, String)],
    loaded: &[String],
    complaints: &[String],
    version: &str,
) -> Vec<String> {
    let loaded: BTreeSet<String> = loaded.iter().map(|name| plain(name)).collect();
    let mut warnings = Vec::new();
    for (key, file) in ini.iter().filter(|(key, _)| key == "extension" || key == "zend_extension") {
        let name = Path::new(file).file_stem().map(|name| plain(&name.to_string_lossy())).unwrap_or_default();
        if !loaded.contains(&name) {
            warnings.push(format!("{key} = {file} is not loaded; {}", remedy(&name, complaints, version)));
        }
    }
    for (name, who) in required(root, &mut warnings) {
        if !loaded.contains(&name) {
            warnings.push(format!(
                "{who} requires ext-{}, which is not loaded; {}",
                terminal::word(&name),
                remedy(&name, complaints, version)
            ));
        }
    }
    let more = warnings.len().saturating_sub(MOST);
    if more > 0 {
        warnings.truncate(MOST);
        warnings.push(format!("{more} more that are required are not loaded"));
    }
    warnings
}

/// As composer writes names: `Zend OPcache` is `zend-opcache`. opcache's own file has a shorter name.
fn plain(name: &str) -> String {
    match name.trim().to_ascii_lowercase().replace(' ', "-") {
        name if name == "zend-opcache" => "opcache".into(),
        name => name,
    }
}

fn remedy(name: &str, complaints: &[String], version: &str) -> String {
    let minor = version.rsplitn(2, '.').last().unwrap_or(version);
    // Names come from the application: what is no name of an extension is not put into a command.
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return "install it".into();
    }
    // Its file is there, and PHP has said what is wrong with it.
    let of_it = |said: &&String| {
        said.contains(&format!("'{name}'"))
            || said.contains(&format!("'{name}.so'"))
            || said.contains(&format!("/{name}.so'"))
    };
    if complaints.iter().any(|said| of_it(&said) && said.contains("undefined symbol")) {
        return "it is installed, and needs another extension that is to be loaded before it: PHP's warning above names what it looks for".into();
    }
    if name == "pcntl" {
        return "Hayate takes it out, as php-fpm is built without it: what forks belongs to the command line"
            .into();
    }
    if name == "opcache" && !matches!(minor, "8.2" | "8.3" | "8.4") {
        return format!(
            "it is part of PHP from 8.5 on: install Debian's libphp{minor}-embed in place of this PHP"
        );
    }
    let package = PACKAGES.iter().find(|(_, all)| all.contains(&name)).map_or(name, |(package, _)| package);
    format!("apt install php{minor}-{package}, or phpenmod -v {minor} -s embed {name} if it is installed")
}

/// Extensions, and who requires them: the project, or the first of its packages. What another package stands in for is not required.
fn required(root: &Path, warnings: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut read = |name: &str| {
        let found = composer::read(root, name).unwrap_or_else(|why| {
            warnings.push(format!("{why}; which extensions it requires is not known"));
            None
        });
        found.unwrap_or_default()
    };
    let composer = read("composer.json");
    let lock = read("composer.lock");
    let packages: Vec<&Value> =
        lock.get("packages").and_then(Value::as_array).into_iter().flatten().collect();
    let names = |package: &Value, key: &str| -> Vec<String> {
        let object = package.get(key).and_then(Value::as_object);
        object.into_iter().flatten().filter_map(|(name, _)| Some(plain(name.strip_prefix("ext-")?))).collect()
    };
    let stood_in: BTreeSet<String> = packages
        .iter()
        .flat_map(|package| [names(package, "provide"), names(package, "replace")])
        .flatten()
        .collect();
    let mut found = BTreeMap::new();
    let project = (&composer, "composer.json".to_owned());
    let others = packages.iter().map(|package| {
        let name = package.get("name").and_then(Value::as_str).unwrap_or("a package of composer.lock");
        (*package, terminal::word(name))
    });
    for (package, who) in std::iter::once(project).chain(others) {
        for name in names(package, "require") {
            found.entry(name).or_insert_with(|| who.clone());
        }
    }
    found.retain(|name, _| !stood_in.contains(name));
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn loaded() -> Vec<String> {
        ["Core", "Zend OPcache", "mbstring", "PDO"].map(String::from).into()
    }

    #[test]
    fn what_composer_requires_and_php_has_not() {
        let dir = tempfile::tempdir().unwrap();
        let warnings = || missing(dir.path(), &[], &loaded(), &[], "8.4.28");
        assert!(warnings().is_empty(), "no composer.json, no requirements");
        fs::write(
            dir.path().join("composer.json"),
            r#"{"require": {"php": ">=8.2", "ext-intl": "*", "ext-PDO": "*", "ext-zend-opcache": "*", "ext-ctype": "*"},
                "require-dev": {"ext-xdebug": "*"}}"#,
        )
        .unwrap();
        fs::write(
            dir.path().join("composer.lock"),
            r#"{"packages": [{"name": "symfony/polyfill-ctype", "provide": {"ext-ctype": "*"}},
                {"name": "a/b", "require": {"ext-simplexml": "*", "ext-intl": "*", "ext-$(x)": "*"}}]}"#,
        )
        .unwrap();
        assert_eq!(
            warnings(),
            [
                "a/b requires ext-$(x), which is not loaded; install it",
                "composer.json requires ext-intl, which is not loaded; \
                 apt install php8.4-intl, or phpenmod -v 8.4 -s embed intl if it is installed",
                "a/b requires ext-simplexml, which is not loaded; \
                 apt install php8.4-xml, or phpenmod -v 8.4 -s embed simplexml if it is installed",
            ]
        );
        fs::write(dir.path().join("composer.json"), r#"{"require": {"ext-pcntl": "*", "ext-sysvmsg": "*"}}"#)
            .unwrap();
        fs::write(dir.path().join("composer.lock"), "{}").unwrap();
        assert_eq!(
            warnings(),
            [
                "composer.json requires ext-pcntl, which is not loaded; \
                 Hayate takes it out, as php-fpm is built without it: what forks belongs to the command line",
                "composer.json requires ext-sysvmsg, which is not loaded; \
                 apt install php8.4-common, or phpenmod -v 8.4 -s embed sysvmsg if it is installed",
            ]
        );
        for odd in ["{\"require\": []}", "{\"require\": {\"ext-\": 1}}", "{\"packages\": {}}"] {
            fs::write(dir.path().join("composer.json"), odd).unwrap();
            fs::write(dir.path().join("composer.lock"), odd).unwrap();
            assert!(warnings().len() <= 1, "{odd}");
        }
        for broken in ["", "[]", "{\"require\": 3}", "{\"require\": {\"ext-intl\": \"*\"},}"] {
            fs::write(dir.path().join("composer.json"), broken).unwrap();
            fs::write(dir.path().join("composer.lock"), broken).unwrap();
            let said = warnings();
            for (said, name) in said.iter().zip(["composer.json", "composer.lock"]) {
                assert!(said.contains(&format!("/{name}")) && said.ends_with("is not known"), "{said}");
            }
            assert_eq!(said.len(), 2, "{broken}");
        }
    }

    #[test]
    fn what_the_configuration_loads_and_php_has_not() {
        let ini = [
            ("extension", "redis.so"),
            ("extension", "mbstring"),
            ("zend_extension", "opcache"),
            ("memory_limit", "x"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let said = missing(Path::new("/nowhere"), &ini, &loaded(), &[], "8.2.36");
        assert_eq!(
            said,
            [
                "extension = redis.so is not loaded; apt install php8.2-redis, or phpenmod -v 8.2 -s embed redis if it is installed"
            ]
        );
    }
}
