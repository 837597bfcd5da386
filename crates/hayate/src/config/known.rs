//! Which keys there are, by their schema, and what is to be said of one that is none: where it stands, or what does here what it does elsewhere.

use std::{ops::Range, sync::LazyLock};

use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{File, MOST_ERRORS};

/// The JSON schema of hayate.toml, with the doc comments of the keys.
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(File).to_value());
    &SCHEMA
}

/// A node without `$ref`.
fn resolve(node: &Value) -> &Value {
    match node.get("$ref").and_then(Value::as_str) {
        Some(reference) => schema().pointer(reference.trim_start_matches('#')).unwrap_or(node),
        None => node,
    }
}

/// What a node may be, if it may be one of several things: a table or nothing, an address or a table.
fn one_of(node: &Value) -> Vec<&Value> {
    let node = resolve(node);
    match ["anyOf", "oneOf", "allOf"].iter().find_map(|of| node.get(of)?.as_array()) {
        Some(several) => several.iter().flat_map(one_of).collect(),
        None => vec![node],
    }
}

/// The table that a node may be: one with keys, or one of free names (ini, env).
fn table_of(node: &Value) -> Option<&Value> {
    let is_table = |node: &&Value| {
        node.get("properties").is_some() || node.get("additionalProperties").is_some_and(Value::is_object)
    };
    one_of(node).into_iter().find(is_table)
}

/// What stands in the array that a node may be.
fn items_of(node: &Value) -> Option<&Value> {
    one_of(node).into_iter().find_map(|node| node.get("items"))
}
/// All keys with the places where they are, in words.
pub(super) fn places() -> &'static [(String, String)] {
    static PLACES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
        let mut places = Vec::new();
        collect_places(schema(), "", &mut places);
        places
    });
    &PLACES
}

fn collect_places(table: &Value, path: &str, places: &mut Vec<(String, String)>) {
    for (key, child) in table.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if child.get("items").is_none() {
            let place = match path {
                "" => "at the top of the file, above the first [table]".into(),
                path => format!("below {path}"),
            };
            places.push((key.clone(), place));
        }
        let above = path.trim_matches(['[', ']']);
        let dotted = if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") };
        if let Some(items) = items_of(child).and_then(table_of) {
            collect_places(items, &format!("[[{dotted}]]"), places);
        } else if let Some(table) = table_of(child) {
            collect_places(table, &format!("[{dotted}]"), places);
        }
    }
}

/// Where a key stands, in words; `None`: there is no such key.
pub fn place_of(key: &str) -> Option<String> {
    let all: Vec<&str> =
        places().iter().filter(|(known, _)| known == key).map(|(_, place)| place.as_str()).collect();
    (!all.is_empty()).then(|| all.join(" or "))
}

/// Those of some names that are nearest to one that is none of them, if it may be a slip of the pen; capitals do not count.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let small = name.to_lowercase();
    let mut found: Vec<(usize, &str)> = known
        .map(|known| (strsim::damerau_levenshtein(&known.to_lowercase(), &small), known))
        .filter(|(distance, _)| *distance <= 1 + name.len() / 4)
        .collect();
    // All that are as near: 'workerz' is as likely to be 'workers' as 'worker'.
    let least = found.iter().map(|(distance, _)| *distance).min();
    found.retain(|(distance, _)| Some(*distance) == least);
    found.into_iter().map(|(_, known)| known).collect()
}

/// Settings that pools of php-fpm and virtual hosts have most often.
const OF_PHP_INI: [&str; 14] = [
    "date_timezone",
    "display_errors",
    "error_log",
    "error_reporting",
    "extension",
    "max_execution_time",
    "max_file_uploads",
    "max_input_time",
    "max_input_vars",
    "memory_limit",
    "open_basedir",
    "post_max_size",
    "upload_max_filesize",
    "zend_extension",
];

/// What others call it, and what does that here.
pub(super) const OF_OTHERS: [(&[&str], &str); 31] = [
    (
        &[
            "pm",
            "max_children",
            "start_servers",
            "min_spare_servers",
            "max_spare_servers",
            "num_workers",
            "worker_count",
            "worker_num",
            "max_workers",
            "min_workers",
        ],
        "workers = \"2-16\" in [[app]] says how many there are",
    ),
    (&["request_terminate_timeout", "fastcgi_read_timeout"], "request_timeout in [[app]] does that"),
    (&["request_slowlog_timeout", "slowlog"], "slow_request in [[app]] does that, into the log"),
    (&["php_version"], "php = \"8.4\" in [[app]] says which PHP runs it"),
    (&["ini_file", "php_ini_file"], "php_ini in [[app]] names a php.ini"),
    (&["clear_env"], "inherit_env in [[app]] names the variables that PHP gets of the server's"),
    (&["php_value", "php_flag"], "settings of php.ini stand below [app.ini]"),
    (
        &["php_admin_value", "php_admin_flag"],
        "settings of php.ini that nothing may change stand below [app.admin_ini]",
    ),
    (&["client_max_body_size"], "body_size in [limits] does that, and max_body in a rule"),
    (&["client_header_timeout"], "header_timeout in [limits] does that"),
    (&["client_body_timeout"], "body_timeout in [limits] does that"),
    (&["keepalive_timeout"], "idle_timeout in [limits] does that"),
    (&["send_timeout"], "write_timeout in [limits] does that"),
    (&["server_name"], "hosts in [[app]] does that"),
    (&["ssl_certificate", "ssl_certificate_key"], "certificates in [tls] does that"),
    (
        &["cert", "crt", "pem", "cert_file", "certfile", "chain", "fullchain"],
        "certificate names the file, as in certificates = [{ certificate = \"shop.pem\", key = \"shop.key\" }]",
    ),
    (&["worker_processes"], "front_threads does that, and workers in [[app]] for PHP"),
    (&["worker_connections"], "connections in [limits] does that"),
    (&["limit_req", "limit_req_zone"], "rate in a rule does that"),
    (&["limit_conn", "limit_conn_zone"], "connections_by_address in [limits] does that"),
    (&["try_files"], "front_controller in [[app]] answers what is no file"),
    (&["add_header"], "headers in a rule does that"),
    (&["expires"], "cache_control in a rule does that"),
    (&["auth_basic", "auth_basic_user_file"], "basic_auth in a rule does that"),
    (&["gzip", "brotli", "zstd"], "[compression] does that"),
    (&["return"], "redirect or deny in a rule does that, with its status"),
    (
        &["location"],
        "[[app.rule]] says for which paths it is by path, glob or regex (docs/migrating-from-nginx.md)",
    ),
    (&["error_page"], "error_pages in [[app]] does that, for errors that Hayate answers with"),
    (
        &["proxy_pass", "fastcgi_pass", "uwsgi_pass", "upstream"],
        "there is no such thing: Hayate runs PHP itself and is no proxy",
    ),
    (
        &["real_ip_header", "set_real_ip_from", "real_ip_recursive"],
        "trusted_proxies and trusted_headers do that",
    ),
    (&["port", "bind"], "listen = \"127.0.0.1:8080\" does that"),
];

/// What to do about a key that is not among `properties`: whoever has it in a wrong place has only to move it.
fn remedy(name: &str, properties: &serde_json::Map<String, Value>) -> String {
    if let Some(place) = place_of(name) {
        return format!("it stands {place}");
    }
    if OF_PHP_INI.contains(&name) {
        return "settings of php.ini stand below [app.ini]".into();
    }
    if name == "host" && properties.contains_key("glob") {
        return "header = { host = \"b.example\" } says for which host a rule is".into();
    }
    if let Some((_, does)) = OF_OTHERS.iter().find(|(names, _)| names.contains(&name)) {
        return (*does).to_owned();
    }
    let near = nearest(name, properties.keys().map(String::as_str));
    if !near.is_empty() {
        let near: Vec<String> = near.iter().map(|near| format!("'{near}'")).collect();
        return format!("did you mean {}?", near.join(" or "));
    }
    let mut near = nearest(name, places().iter().map(|(key, _)| key.as_str()));
    near.dedup();
    let places_of = |near: &str| place_of(near).unwrap_or_default();
    match near[..] {
        [near] => return format!("did you mean '{near}'? It stands {}", places_of(near)),
        [one, other] => {
            let (of_one, of_other) = (places_of(one), places_of(other));
            return format!(
                "did you mean '{one}', which stands {of_one}, or '{other}', which stands {of_other}?"
            );
        }
        _ => {}
    }
    let keys: Vec<&str> = properties.keys().map(String::as_str).collect();
    format!("the keys here are {}", keys.join(", "))
}

/// Where a key is that may not be there, and why.
pub(super) type Wrong = (Range<usize>, String);

/// Finds keys that do not exist: all of them, so that a file is repaired in one go.
pub(super) fn check_keys(table: &DeTable<'_>, schema: &Value, place: &str, wrong: &mut Vec<Wrong>) {
    // In the file's order, which the table has lost: the first mistake is reported first.
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        let room = (MOST_ERRORS + 1).saturating_sub(wrong.len());
        return wrong
            .extend(entries.into_iter().filter_map(|(key, value)| free(key, value, place)).take(room));
    };
    for (key, value) in entries {
        if wrong.len() > MOST_ERRORS {
            return;
        }
        let name: &str = key.get_ref();
        let Some(known) = properties.get(name) else {
            wrong.push((key.span(), format!("unknown key '{name}' {place}; {}", remedy(name, properties))));
            continue;
        };
        // As one writes it: [[app.rule]], [app.ini].
        let below = place.strip_prefix("in ").map(|above| above.trim_matches(['[', ']']));
        let path = below.map_or_else(|| name.to_owned(), |above| format!("{above}.{name}"));
        let inside = format!("in [{path}]");
        let (as_table, items) = (table_of(known), items_of(known));
        match value.get_ref() {
            DeValue::Table(_) if as_table.is_none() && items.is_some() => {
                let many = items.and_then(table_of).is_some();
                let why = match many {
                    true => format!("[{path}] may be there several times: write [[{path}]]"),
                    false => format!("[{path}] is no table: write {name} = [\"…\"]"),
                };
                wrong.push((key.span(), why));
            }
            DeValue::Table(table) => match as_table {
                Some(schema) => check_keys(table, schema, &inside, wrong),
                None => {
                    let remedy = match name {
                        "php" | "php_ini" | "php_ini_scan_dir" => {
                            "settings of php.ini stand below [app.ini]".to_owned()
                        }
                        name => format!("write {name} = …"),
                    };
                    wrong.push((key.span(), format!("'{name}' {place} is a value and no table; {remedy}")));
                }
            },
            DeValue::Array(array) => {
                let items = items.and_then(table_of);
                for item in array.iter() {
                    if let (DeValue::Table(table), Some(items)) = (item.get_ref(), items) {
                        check_keys(table, items, &format!("in [[{path}]]"), wrong);
                    }
                }
            }
            _ => {}
        }
    }
}

/// In a table of free names (ini, env) there are no tables: a name with a dot in it was meant.
fn free(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    place: &str,
) -> Option<Wrong> {
    let mut path = vec![key.get_ref().to_string()];
    let mut at = value.get_ref();
    while let DeValue::Table(table) = at {
        let Some((key, value)) = table.iter().next() else { break };
        path.push(key.get_ref().to_string());
        at = value.get_ref();
    }
    (path.len() > 1).then(|| {
        let why = format!(
            "'{}' {place} is a table, and only values stand here; a name with a dot in it wants quotes: write \"{}\" = …",
            key.get_ref(),
            path.join(".")
        );
        (key.span(), why)
    })
}
