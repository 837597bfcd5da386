//! What a front controller does, by its text: comments and white space do not count, where they keep no words apart.

use std::path::Path;

use super::{
    requests::{OF_A_REQUEST, SUPERGLOBALS},
    source::{compact, is_of_word, line_of},
};
use crate::of_application;

/// A file's text as `compact` makes it, where that is certain.
pub(super) fn compact_file(root: &Path, file: &str) -> Result<String, String> {
    let text = of_application::read_text(&root.join(file), of_application::MOST);
    let text = text.map_err(|error| format!("{file} cannot be read: {error}"))?;
    compact(&text).map_err(|doubt| format!("its {file} has {doubt}, so what it does is not known"))
}

/// The line of byte `at` of what `compact_file` makes of a file.
pub(super) fn line_in(root: &Path, file: &str, at: usize) -> usize {
    let text = of_application::read_text(&root.join(file), of_application::MOST);
    text.map_or(1, |text| line_of(&text, at))
}

/// A statement as one of these; `""`: it may be left out, since the boot script does this only where it stands there.
type Statement = &'static [&'static str];

/// The front controllers that a framework comes with, compact: how all of them begin, and how each goes on.
pub(super) struct Skeletons {
    begins: &'static [Statement],
    ends: &'static [&'static [Statement]],
    /// What they mean by the short names of classes in them.
    imports: &'static [&'static str],
}

const LARAVEL_APP: Statement = &["$app=require_once __DIR__.'/../bootstrap/app.php';"];
const LARAVEL_KERNEL: Statement = &[
    "$kernel=$app->make(Kernel::class);",
    "$kernel=$app->make(Illuminate\\Contracts\\Http\\Kernel::class);",
];
const LARAVEL_TERMINATES: Statement = &["$kernel->terminate($request,$response);"];

/// Those of Laravel 8 to 13.
pub(super) const LARAVEL: Skeletons = Skeletons {
    begins: &[
        &["define('LARAVEL_START',microtime(true));"],
        &[
            "if(file_exists($maintenance=__DIR__.'/../storage/framework/maintenance.php')){require$maintenance;}",
            "if(file_exists(__DIR__.'/../storage/framework/maintenance.php')){require __DIR__.'/../storage/framework/maintenance.php';}",
            "",
        ],
        &["require __DIR__.'/../vendor/autoload.php';"],
    ],
    ends: &[
        &[
            LARAVEL_APP,
            LARAVEL_KERNEL,
            &[
                "$response=$kernel->handle($request=Request::capture())->send();",
                "$response=tap($kernel->handle($request=Request::capture()))->send();",
            ],
            LARAVEL_TERMINATES,
        ],
        &[
            LARAVEL_APP,
            LARAVEL_KERNEL,
            &[
                "$response=$kernel->handle($request=Request::capture());",
                "$response=$kernel->handle($request=Illuminate\\Http\\Request::capture());",
            ],
            &["$response->send();"],
            LARAVEL_TERMINATES,
        ],
        &[LARAVEL_APP, &["$app->handleRequest(Request::capture());"]],
        &[&["(require_once __DIR__.'/../bootstrap/app.php')->handleRequest(Request::capture());"]],
    ],
    imports: &[
        "Illuminate\\Contracts\\Http\\Kernel",
        "Illuminate\\Http\\Request",
        "Illuminate\\Foundation\\Application",
    ],
};

/// Those of Symfony without symfony/runtime.
pub(super) const SYMFONY: Skeletons = Skeletons {
    begins: &[
        &[
            "require dirname(__DIR__).'/vendor/autoload.php';",
            "require_once dirname(__DIR__).'/vendor/autoload.php';",
        ],
        &["(new Dotenv())->bootEnv(dirname(__DIR__).'/.env');", ""],
        &[
            "if($_SERVER['APP_DEBUG']){umask(0000);Debug::enable();}",
            "if($_SERVER['APP_DEBUG']){umask(0000);if(class_exists(Debug::class)){Debug::enable();}}",
            "",
        ],
        &[
            "$kernel=new Kernel($_SERVER['APP_ENV'],(bool)$_SERVER['APP_DEBUG']);",
            "$kernel=new Kernel($_SERVER['APP_ENV']??'prod',(bool)($_SERVER['APP_DEBUG']??false));",
        ],
        &["$request=Request::createFromGlobals();"],
        &["$response=$kernel->handle($request);"],
        &["$response->send();"],
        &["$kernel->terminate($request,$response);"],
    ],
    ends: &[&[]],
    imports: &[
        "App\\Kernel",
        "Symfony\\Component\\Debug\\Debug",
        "Symfony\\Component\\Dotenv\\Dotenv",
        "Symfony\\Component\\ErrorHandler\\Debug",
        "Symfony\\Component\\HttpFoundation\\Request",
    ],
};

/// The beginning of it, for people, and for their terminals.
fn shown(text: &str) -> String {
    text.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn short(class: &str) -> &str {
    class.rsplit('\\').next().unwrap_or(class)
}

/// Whether a statement names a class by its short name, which then is what is imported.
fn names(statement: &str, class: &str) -> bool {
    statement.match_indices(class).any(|(at, _)| {
        let (before, after) = statement.split_at_checked(at).unwrap_or_default();
        !before.ends_with(is_of_word)
            && !after.strip_prefix(class).unwrap_or_default().starts_with(is_of_word)
    })
}

/// Of these front controllers, what keeps statements from being one, in the one that they are most of. `None`: they are one.
fn differs(found: &[&str], of: &Skeletons) -> Option<String> {
    let of_one = |end: &[Statement]| {
        let mut rest = found;
        let mut agreed = 0;
        for forms in of.begins.iter().chain(end) {
            match rest.split_first() {
                Some((first, after)) if forms.contains(first) => (rest, agreed) = (after, agreed + 1),
                _ if forms.contains(&"") => {}
                next => {
                    let missing = shown(forms.first().copied().unwrap_or_default());
                    let there = next.map(|(first, _)| format!(" before {} …", shown(first)));
                    return Some((agreed, format!("leaves out {missing} …{}", there.unwrap_or_default())));
                }
            }
        }
        let more = rest.first()?;
        Some((agreed, format!("has {} … once more, or elsewhere", shown(more))))
    };
    let differences: Option<Vec<_>> = of.ends.iter().map(|end| of_one(end)).collect();
    differences?.into_iter().rev().max_by_key(|(agreed, _)| *agreed).map(|(_, difference)| difference)
}

/// Whether a front controller consists of the statements of one of these, declarations and imports only, and means by the names of
/// classes what it would as it comes with its framework: another class of that name may ask for a password. What it leaves out would be
/// done by the boot script nevertheless.
pub(super) fn only(compacted: &str, of: &Skeletons) -> Result<(), String> {
    let statements: Vec<&str> = of
        .begins
        .iter()
        .chain(of.ends.iter().copied().flatten())
        .flat_map(|forms| forms.iter())
        .copied()
        .filter(|s| !s.is_empty())
        .collect();
    let mut found = Vec::new();
    let known: Vec<String> = of.imports.iter().map(|class| format!("use {class};")).collect();
    let (mut named, mut imported) = (Vec::new(), Vec::new());
    let mut rest = compacted;
    while !rest.is_empty() {
        let statement = statements.iter().find(|statement| rest.starts_with(**statement)).copied();
        let statement = match statement {
            Some(statement) => {
                found.push(statement);
                let classes = of.imports.iter().map(|class| short(class));
                named.extend(classes.filter(|class| names(statement, class)));
                Some(statement)
            }
            None => match known.iter().position(|import| rest.starts_with(import)) {
                Some(at) => {
                    imported.extend(of.imports.get(at).map(|class| short(class)));
                    known.get(at).map(String::as_str)
                }
                None => Some("declare(strict_types=1);").filter(|declaration| rest.starts_with(declaration)),
            },
        };
        match statement.and_then(|statement| rest.strip_prefix(statement)) {
            Some(after) => rest = after,
            None => {
                let start = shown(rest);
                return Err(format!("its public/index.php does more than to start it ({start} …)"));
            }
        }
    }
    if let Some(class) = named.into_iter().find(|class| !imported.contains(class)) {
        return Err(format!(
            "its public/index.php does not say which class it means by {class} (use …\\{class};)"
        ));
    }
    match differs(&found, of) {
        Some(difference) => Err(format!("its public/index.php is not the framework's own: it {difference}")),
        None => Ok(()),
    }
}

/// What a front controller mentions that depends on the request besides [`OF_A_REQUEST`]; it runs once, before the first.
const BESIDES: [&str; 11] = [
    "filter_",
    "getallheaders",
    "apache_request_headers",
    "php://input",
    "createFromGlobals",
    "header(",
    "setcookie(",
    "session_",
    "ob_start",
    "exit",
    "die(",
];

/// Whether a front controller of symfony/runtime can run before there is a request, and where its closure begins. It is run as it is, so it
/// may do other things.
pub(super) fn suits_runtime(compacted: &str) -> Result<usize, String> {
    let mut words = SUPERGLOBALS.iter().chain(&OF_A_REQUEST).chain(&BESIDES);
    if let Some(word) = words.find(|word| compacted.contains(**word)) {
        return Err(format!("its public/index.php depends on the request ({word})"));
    }
    let closure = ["return", "return static"]
        .iter()
        .flat_map(|start| ["function", "fn"].map(|f| format!("{start} {f}(array$context)")));
    let begins = closure.into_iter().filter_map(|closure| compacted.find(&closure)).min();
    // Within braces it may be another function's.
    let is_outermost = |at: &usize| {
        let before = compacted.get(..*at).unwrap_or_default();
        before.matches('{').count() == before.matches('}').count()
    };
    begins.filter(is_outermost).ok_or_else(|| {
        "its public/index.php returns no closure that takes an array $context alone".to_owned()
    })
}

/// Whether a front controller ends with `$app->run();`, which it calls nowhere else. Whether it looks at a request before, the host
/// sees as it runs it.
pub(super) fn ends_with_run(compacted: &str) -> Result<(), String> {
    let code = compacted;
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
pub(super) fn ends_with(compacted: &str, call: &str, ends: &[&str], readable: &str) -> Result<(), String> {
    let code = compacted;
    let before = ends.iter().find_map(|end| code.strip_suffix(end));
    match before {
        Some(before) if before.ends_with([';', '}']) && !before.contains(call) => Ok(()),
        _ => Err(format!("its front controller does not end with {readable}, called once")),
    }
}
