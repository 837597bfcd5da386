//! What code that runs once, before there is a request, asks of one, by its text.
//!
//! It goes by words and prefers doubt: a false one costs speed, one that is missed shows a visitor what was made for nobody.

use std::{fs, path::Path};

use super::front_controllers::compact_file;

/// PHP's own variables of a request.
pub(super) const SUPERGLOBALS: [&str; 6] =
    ["$_GET", "$_POST", "$_COOKIE", "$_REQUEST", "$_FILES", "$_SESSION"];

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
const IN_CONFIGURATION: [&str; 17] = [
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
pub(super) fn asks_for_request(text: &str) -> Option<String> {
    let text = text.replace('"', "'");
    let mut words = SUPERGLOBALS.iter().chain(&IN_CONFIGURATION);
    let word = words.find(|word| text.contains(**word)).map(|word| (*word).to_owned());
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
pub(super) fn no_request_in(root: &Path, directory: &str, but: &[&str]) -> Result<(), String> {
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
pub(super) fn no_request_in_modules(root: &Path) -> Result<(), String> {
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
