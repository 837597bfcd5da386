//! What a front controller of symfony/runtime asks of the array that its closure is given, which is $_SERVER: before there is a request
//! that has what the process was given; in a request it has what a visitor sends. So only names that are written down, and are of no
//! request, are asked of it; whoever has all of it, or picks by a variable, may take whatever a request brings.

use super::requests::OF_A_REQUEST;

/// Arrays that have all that a request brings.
const ARRAYS: [&str; 3] = ["$context", "$_SERVER", "$_ENV"];
/// By what a variable is had under no name of its own, by another one, or all of them at once. Small letters: PHP does not tell them from
/// large ones in names.
const UNSEEN: [&str; 11] = [
    "$$",
    "${",
    "$globals",
    "func_get_arg",
    "get_defined_vars(",
    "debug_backtrace(",
    "compact(",
    "extract(",
    "parse_str(",
    "eval(",
    "getenv()",
];
/// By what another file gets the closure's variables.
const INCLUDES: [&str; 2] = ["include", "require"];

/// What it asks for, and at which byte of the text. `closure`: where that begins.
pub(super) fn asks_of_context(compacted: &str, closure: usize) -> Option<(usize, String)> {
    let small = compacted.to_ascii_lowercase();
    let all = ARRAYS.iter().flat_map(|array| compacted.match_indices(array));
    let asked = all.filter_map(|(at, array)| {
        let rest = compacted.get(at + array.len()..)?;
        let declared = at.checked_sub("(array".len()).and_then(|from| compacted.get(from..at));
        if declared == Some("(array") && rest.starts_with(')') {
            return None; // the parameter
        }
        // A name that is longer is doubted, too.
        match literal(rest) {
            Some(name) if !OF_A_REQUEST.iter().any(|start| name.starts_with(start)) => None,
            Some(name) => Some((at, format!("{array}['{name}']"))),
            None => Some((at, format!("{array} for more than a name that is written down"))),
        }
    });
    let unseen = UNSEEN.iter().filter_map(|word| small.find(word).map(|at| (at, (*word).to_owned())));
    let body = small.get(closure..).unwrap_or_default();
    let includes = INCLUDES.iter().filter_map(|word| {
        let at = body.find(word)?;
        Some((closure + at, format!("{word} within the closure, whose variables the file gets")))
    });
    asked.chain(unseen).chain(includes).min_by_key(|(at, _)| *at)
}

/// The name in `['NAME']`, with either quotes, that a text begins with.
fn literal(text: &str) -> Option<&str> {
    let quote = text.strip_prefix('[')?.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let (name, after) = text.get(2..)?.split_once(quote)?;
    (after.starts_with(']') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(body: &str) -> Option<String> {
        let text = format!("return function(array$context){{{body}}};");
        asks_of_context(&text, 0).map(|(_, what)| what)
    }

    #[test]
    fn names_that_are_written_down_and_of_no_request_are_the_same_for_all() {
        for harmless in [
            "return new Kernel($context['APP_ENV'],(bool)$context['APP_DEBUG']);",
            "return new Kernel($context[\"APP_ENV\"]??'prod',false);",
            "return new Kernel(...array_map(fn($n)=>$n,[$context['APP_ENV'],false]));",
            "$_SERVER['APP_RUNTIME_OPTIONS']=[];return$_ENV['APP_ENV'];",
        ] {
            assert_eq!(asks(harmless), None, "{harmless}");
        }
    }

    #[test]
    fn all_of_it_or_what_a_request_brings_is_one_requests() {
        for of_one in [
            "return Kernel::forTenant($context);",
            "return new Kernel(...$context);",
            "$host=&$context;",
            "$host=&$context['HTTP_HOST'];",
            "$f=function()use($context){};",
            "$f=function()use(&$context){};",
            "$f=fn()=>$context[$key];",
            "foreach($context as$n=>$v){}",
            "$a=$context and true;",
            "['HTTP_HOST'=>$host]=$context;",
            "list('HTTP_HOST'=>$host)=$context;",
            "$a=$context[\"HTTPS\"];",
            "$a=$context['REDIRECT_URL'];",
            "$a=$context[\"ORIG_PATH_INFO\"];",
            "$a=$context['DOCUMENT_URI'];",
            "$a=$context['GATEWAY_INTERFACE'];",
            "$a=$context['HTTP_'.'HOST'];",
            "$a=$context[\"HTTP_$n\"];",
            "$a=$context[\"\\x48TTPS\"];",
            "$a=\"$context[HTTP_HOST]\";",
            "$a=isset($context);",
            "$a=$$name;",
            "$a=\"${name}\";",
            "$a=Compact('context');",
            "$a=func_get_args();",
            "$a=get_defined_vars();",
            "$a=$GLOBALS['_SERVER'];",
            "return(require'kernel.php');",
            "include dirname(__DIR__).'/kernel.php';",
            "$a=Kernel::of($_SERVER);",
            "$a=$_ENV;",
            "$a=getenv();",
        ] {
            assert!(asks(of_one).is_some(), "{of_one}");
        }
    }
}
