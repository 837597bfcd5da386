//! What code that runs once, before there is a request, asks of one, by its text.
//!
//! It goes by words and prefers doubt: a false one costs speed, one that is missed shows a visitor what was made for nobody. What is not
//! found here, in what the application loads as it boots, the host and the boot scripts look for as it runs.

use super::source::Sources;

/// PHP's own variables of a request.
pub(super) const SUPERGLOBALS: [&str; 6] =
    ["$_GET", "$_POST", "$_COOKIE", "$_REQUEST", "$_FILES", "$_SESSION"];

/// How variables of a request begin in $_SERVER and in the environment. They are those of host/settled.c.
pub(super) const OF_A_REQUEST: [&str; 20] = [
    "HTTP",
    "REQUEST_",
    "REMOTE_",
    "SERVER_",
    "QUERY_STRING",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "PHP_SELF",
    "SCRIPT",
    "DOCUMENT_URI",
    "ORIG_",
    "REDIRECT_",
    "CONTENT_",
    "PHP_AUTH",
    "AUTH_TYPE",
    "SSL_",
    "HAYATE_",
    "GATEWAY_",
    "argv",
    "argc",
];

/// Mentions of such a variable that CodeIgniter's configuration comes with: it is looked at in the request.
const CODEIGNITER: [&str; 3] =
    ["$uriProtocol='REQUEST_URI';", "$uriProtocol='QUERY_STRING';", "$uriProtocol='PATH_INFO';"];

/// So begins a block of CakePHP's config/bootstrap.php.
const CAKEPHP_BEGINS: &str = "if(!$fullBaseUrl){";
/// What that block goes on with, statement after statement, each as one of these: without a request it does nothing, and leaves nothing.
/// Each request gets the same answer by itself.
const CAKEPHP: [&[&[&str]]; 2] = [
    &[
        &["$trustProxy=false;", ""],
        &["$s=null;"],
        &[
            "if(env('HTTPS')||($trustProxy&&env('HTTP_X_FORWARDED_PROTO')==='https')){$s='s';}",
            "if(env('HTTPS')){$s='s';}",
        ],
        &["$httpHost=env('HTTP_HOST');"],
        &["if(isset($httpHost)){", "if($httpHost){"],
        &["$fullBaseUrl='http'.$s.'://'.$httpHost;}"],
        &["unset($httpHost,$s);}"],
    ],
    // Since 5.3, beside a middleware that refuses all requests where App.fullBaseUrl is not set.
    &[
        &["$httpHost=env('HTTP_HOST');"],
        &["if($httpHost){$s=null;"],
        &["if(env('HTTPS')){$s='s';}", CAKEPHP_TRUSTS],
        &["$fullBaseUrl='http'.$s.'://'.$httpHost;}"],
        &["unset($httpHost,$s);}"],
    ],
];
/// A statement of that block that takes the scheme from whoever sends it.
pub(super) const CAKEPHP_TRUSTS: &str = "if(env('HTTPS')||env('HTTP_X_FORWARDED_PROTO')==='https'){$s='s';}";

/// A superglobal of superglobals, and constants by which PHP filters them.
const EXACT: [&str; 2] = ["$GLOBALS", "INPUT_"];
/// What else is of a request, or is otherwise where there is none. A name that is made at run time may be any. Small letters, since PHP
/// does not tell them from large ones in names.
const ANYWHERE: [&str; 17] = [
    "php://input",
    "request(",
    "fromglobals(",
    "service('request'",
    "service('incomingrequest'",
    "service('session'",
    "service('negotiator'",
    "service('uri'",
    "service('superglobals'",
    "service($",
    "getallheaders(",
    "request_headers(",
    "session_start(",
    "getenv()",
    "env($",
    "iscli(",
    "$httphost",
];
/// Functions and methods of that kind whose names are parts of others.
const FUNCTIONS: [&str; 17] = [
    "is_cli",
    "session",
    "get_cookie",
    "current_url",
    "previous_url",
    "site_url",
    "base_url",
    "uri_string",
    "url_is",
    "old",
    "auth",
    "user_id",
    "uri",
    "negotiator",
    "superglobals",
    "router::url",
    "filter_input",
];
/// Whether a function of this name is called in a text of small letters.
fn calls(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = &text[..at];
        let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text[at + name.len()..].starts_with('(')
            && !before.ends_with(is_of_a_name)
            && !before.ends_with("function ")
    })
}

/// A variable of a request that is named in a string by itself, or by its beginning.
fn variable(text: &str) -> Option<&str> {
    text.match_indices('\'').map(|(at, _)| &text[at + 1..]).find_map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
        let (name, after) = rest.split_at(end);
        let is_one = OF_A_REQUEST.iter().any(|start| name.starts_with(start))
            && (name.contains('_') || name == "HTTPS")
            && after.starts_with(['\'', '$', '{']);
        is_one.then_some(name)
    })
}

/// What a configuration file, compact, wants to know of a request.
pub(super) fn asks_for_request(text: &str) -> Option<String> {
    let text = text.replace('"', "'");
    if let Some(word) = SUPERGLOBALS.iter().chain(&EXACT).find(|word| text.contains(**word)) {
        return Some((*word).to_owned());
    }
    let small = text.to_ascii_lowercase();
    if let Some(word) = ANYWHERE.iter().find(|word| small.contains(**word)) {
        return Some((*word).to_owned());
    }
    if let Some(name) = FUNCTIONS.iter().find(|name| calls(&small, name)) {
        return Some(format!("{name}("));
    }
    if let Some(name) = variable(&text) {
        return Some(format!("'{name}'"));
    }
    // Whoever has all of it, or picks by a variable, may take whatever a request brings.
    let is_picked = |rest: &str| rest.starts_with("['");
    text.split("$_SERVER").skip(1).any(|rest| !is_picked(rest)).then(|| "$_SERVER".to_owned())
}

/// A configuration file without what the frameworks' skeletons have in it, where it stands as a whole.
fn without_skeleton(text: &str) -> String {
    let text = CODEIGNITER.iter().fold(text.to_owned(), |text, known| text.replacen(known, "", 1));
    let Some((before, block)) = text.split_once(CAKEPHP_BEGINS) else { return text };
    let after = CAKEPHP.iter().find_map(|statements| {
        statements.iter().try_fold(block, |rest, forms| forms.iter().find_map(|form| rest.strip_prefix(form)))
    });
    after.map(|after| format!("{before}{after}")).unwrap_or(text)
}

/// Whether configuration that is read before there is a request, in a directory and those below it, has nothing to do with one.
pub(super) fn no_request_in(sources: &mut Sources, directory: &str, but: &[&str]) -> Result<(), String> {
    for file in sources.below(directory, but)? {
        let text = sources.text(&file)?.unwrap_or_default();
        if let Some(word) = asks_for_request(&without_skeleton(&text)) {
            return Err(format!("its {file} depends on the request ({word} …)"));
        }
    }
    Ok(())
}

/// By what a module of Laminas gets at the request or at a session.
const IN_MODULES: [&str; 6] =
    ["->getRequest(", "get('Request')", "getParam('request'", "->getParams(", "session_start(", "->start("];

/// Whether the modules of a Laminas project, as they are bootstrapped, look at the request: it is an empty one then.
pub(super) fn no_request_in_modules(sources: &mut Sources) -> Result<(), String> {
    for (name, is_directory) in sources.entries("module")? {
        if !is_directory {
            continue;
        }
        for file in [format!("module/{name}/src/Module.php"), format!("module/{name}/Module.php")] {
            let text = sources.text(&file)?.unwrap_or_default().replace('"', "'");
            let word = IN_MODULES.iter().find(|word| text.contains(**word));
            if let Some(word) = word.map(|word| (*word).to_owned()).or_else(|| asks_for_request(&text)) {
                return Err(format!("its {file} depends on the request ({word} …)"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A variable that one of them does not know would be asked once for all visitors.
    #[test]
    fn the_host_knows_the_same_variables_of_a_request() {
        let source = include_str!("../../../../host/settled.c");
        let (_, list) =
            source.split_once("of_a_request[] = {").expect("host/settled.c has a list of_a_request[]");
        let (list, _) = list.split_once("};").expect("the list ends");
        let of_the_host: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
        assert!(of_the_host.contains("SSL_"), "{of_the_host:?}");
        assert_eq!(of_the_host, BTreeSet::from(OF_A_REQUEST));
    }

    #[test]
    fn what_configuration_asks_of_a_request() {
        for asks in [
            "env('HTTPS')",
            "Env('HTTP_HOST')",
            "env(\"SSL_CLIENT_VERIFY\")",
            "$_SERVER['AUTH_TYPE']",
            "$_SERVER['ORIG_PATH_INFO']",
            "$_SERVER['REDIRECT_STATUS']",
            "$_SERVER['PATH_TRANSLATED']",
            "$_SERVER['HAYATE_WARMUP']",
            "My::environment('REMOTE_ADDR')",
            "env(\"HTTP_$name\")",
            "env('HTTP_'.$name)",
            "return get_cookie('lang')",
            "?:old('x')",
            "Old('x')",
            "auth()->user()",
            "url_is('a')",
            "service('negotiator')",
            "Services::negotiator()",
            "new IncomingRequest($config)",
            "new Request()",
            "Router::url('/')",
        ] {
            assert!(asks_for_request(asks).is_some(), "{asks}");
        }
        for harmless in [
            "threshold(1)",
            "$globals=['before'=>[]]",
            "function auth()",
            "env('APP_NAME')",
            "$_SERVER['APP_NAME']",
            "'HTTP/1.1'",
            "'X-Forwarded-For'",
            "'className'=>'HTTP'",
            "getenv('DATABASE_URL')",
        ] {
            assert_eq!(asks_for_request(harmless), None, "{harmless}");
        }
    }
}
