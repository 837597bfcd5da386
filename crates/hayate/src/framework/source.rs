//! A project's PHP source, as far as it is searched before PHP runs.
//!
//! It is the application's to write, and who reads it may be root, for all applications at once: so what is read of one application is
//! bounded for all of its files together. What is not understood is said, never guessed: a comment that begins where PHP sees none would
//! hide the rest of a file.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::of_application;

/// Files of one application that are searched, and their bytes. Skeletons have fifty files with 100 kB.
const FILES: usize = 500;
const BYTES: u64 = 8 << 20;
/// Names in its directories that are looked at, and levels of them.
const NAMES: usize = 5_000;
const LEVELS: usize = 8;

/// The source of one application: what has been read of it counts.
pub(super) struct Sources<'a> {
    root: &'a Path,
    files: usize,
    bytes: u64,
    names: usize,
}

impl<'a> Sources<'a> {
    pub(super) fn new(root: &'a Path) -> Sources<'a> {
        Sources { root, files: 0, bytes: 0, names: 0 }
    }

    /// A file's text as `searched` has it. `None`: there is none.
    pub(super) fn text(&mut self, file: &str) -> Result<Option<String>, String> {
        self.files += 1;
        if self.files > FILES {
            return Err(format!(
                "it has more configuration than is searched: {file} is file {}, allowed are {FILES} files",
                self.files
            ));
        }
        let left = BYTES.saturating_sub(self.bytes);
        let most = of_application::MOST.min(left);
        let text = match of_application::read_text(&self.root.join(file), most) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) if left < of_application::MOST && error.kind() == ErrorKind::InvalidInput => {
                return Err(format!(
                    "it has more configuration than is searched: with {file} it is more than {BYTES} bytes in {} files, allowed are \
                     {BYTES}",
                    self.files
                ));
            }
            Err(error) => return Err(format!("{file} cannot be read: {error}")),
        };
        self.bytes += text.len() as u64;
        Ok(Some(searched(&text)))
    }

    /// Names of a directory's entries, sorted, and whether each is a directory itself. One that is missing has none.
    pub(super) fn entries(&mut self, directory: &str) -> Result<Vec<(String, bool)>, String> {
        let unreadable = |error| format!("{directory} cannot be read: {error}");
        let entries = match fs::read_dir(self.root.join(directory)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            self.names += 1;
            if self.names > NAMES {
                return Err(format!(
                    "it has more configuration than is searched: {directory} brings its directories to more than {NAMES} names, \
                     allowed are {NAMES}"
                ));
            }
            // A name that is no UTF-8 is none that a framework would load.
            let Ok(name) = entry.file_name().into_string() else { continue };
            found.push((name, entry.path().is_dir()));
        }
        found.sort();
        Ok(found)
    }

    /// The PHP files below a directory, in the order of their names; `but` these, files or directories, of its first level.
    pub(super) fn below(&mut self, directory: &str, but: &[&str]) -> Result<Vec<String>, String> {
        let mut files = Vec::new();
        let mut directories = vec![(PathBuf::from(directory), 0)];
        while let Some((directory, level)) = directories.pop() {
            for (name, is_directory) in self.entries(&directory.to_string_lossy())? {
                if level == 0 && but.contains(&&*name) {
                    continue;
                }
                let path = directory.join(&name);
                if !is_directory {
                    if name.ends_with(".php") {
                        files.push(path.to_string_lossy().into_owned());
                    }
                } else if level < LEVELS {
                    directories.push((path, level + 1));
                } else {
                    return Err(format!(
                        "it has more configuration than is searched: {} is deeper than the {LEVELS} levels that are allowed",
                        path.display()
                    ));
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

/// A file's text without its comments and white space; where it is in doubt what is a comment, with them. So a word in it that is looked for
/// is found, if need be one too many.
fn searched(source: &str) -> String {
    compact(source).unwrap_or_else(|_| {
        let mut out = String::with_capacity(source.len());
        let mut gap = false;
        for c in source.chars() {
            if !c.is_whitespace() {
                push(&mut out, c, gap);
            }
            gap = c.is_whitespace();
        }
        out
    })
}

/// Whether a character may be part of a name, a keyword or a number.
pub(super) fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '\\' || !c.is_ascii()
}

/// `gap`: something that is left out stood before it, which keeps two words apart.
fn push(out: &mut String, c: char, gap: bool) {
    if gap && is_of_word(c) && out.ends_with(is_of_word) {
        out.push(' ');
    }
    out.push(c);
}

/// PHP source without comments and white space outside of strings, but for a blank between two words: so two texts are equal only if they
/// are the same code. `Err`: it has this, after which only PHP itself knows what is code.
pub(super) fn compact(source: &str) -> Result<String, &'static str> {
    compact_noting(source, |_, _| ())
}

/// The line, from 1 on, that byte `at` of what `compact` makes of a source comes from.
pub(super) fn line_of(source: &str, at: usize) -> usize {
    let mut from = 0;
    let _ = compact_noting(source, |to, of| {
        if to <= at {
            from = of + (at - to);
        }
    });
    1 + source.bytes().take(from).filter(|byte| *byte == b'\n').count()
}

/// `note` is told, of each piece that is kept, the byte where it goes to and the one where it comes from.
fn compact_noting(source: &str, mut note: impl FnMut(usize, usize)) -> Result<String, &'static str> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source.strip_prefix("<?php").ok_or("text before <?php")?;
    let mut gap = false;
    while let Some(c) = rest.chars().next() {
        let from = source.len() - rest.len();
        let before = out.len();
        if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").ok_or("a comment without an end")?.1;
        } else if rest.starts_with("//") || (c == '#' && !rest.starts_with("#[")) {
            // It ends with the line, and where PHP does.
            let line = rest.split(['\n', '\r']).next().unwrap_or(rest);
            let comment = line.split("?>").next().unwrap_or(line);
            rest = rest.strip_prefix(comment).unwrap_or_default();
        } else if c == '\'' || c == '"' {
            let (string, after) = split_string(rest, c)?;
            note(out.len(), from);
            out.push_str(string);
            rest = after;
        } else if c == '`' {
            return Err("a command in `");
        } else if rest.starts_with("<<<") {
            return Err("a heredoc (<<<)");
        } else if let Some(after) = rest.strip_prefix("?>") {
            if !after.trim().is_empty() {
                return Err("text after ?>");
            }
            break;
        } else {
            if !c.is_whitespace() {
                push(&mut out, c, gap);
                note(out.len() - c.len_utf8(), from);
            }
            rest = rest.strip_prefix(c).unwrap_or_default();
        }
        gap = out.len() == before;
    }
    // What follows it is nobody's code.
    if out.to_ascii_lowercase().contains("__halt_compiler") { Err("__halt_compiler()") } else { Ok(out) }
}

/// A string that the text begins with, with both its quotes, and what follows it.
fn split_string(text: &str, quote: char) -> Result<(&str, &str), &'static str> {
    let mut escaped = true; // the first quote begins it
    let end = text.find(|c: char| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let end = end.ok_or("a string without an end")?;
    let (string, after) = text.split_at_checked(end + quote.len_utf8()).ok_or("a string without an end")?;
    // Within the braces of "{$a["b"]}" the same quote is code's.
    let opened = string.rfind("{$").max(string.rfind("${"));
    let closed = string.rfind('}');
    if quote == '"' && opened.is_some_and(|opened| closed < Some(opened)) {
        return Err("a string in a string (\"{$…\"…)");
    }
    Ok((string, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_does_not_hide_a_statement() {
        let is = |source: &str, text: &str| assert_eq!(compact(source).unwrap(), text);
        is("<?php # a\n$a = 'b // c'; /* d */ e(); // f", "$a='b // c';e();");
        is("<?php $a = 'it\\'s'; #[Attribute]", "$a='it\\'s';#[Attribute]");
        is("<?php // a\r$b = \"{$c}/*\"; ?>\n", "$b=\"{$c}/*\";");
        is("<?php // a ?>\n", "");
        is("<?php new /**/ Kernel ( 'a' ) and\n$b = new\\Kernel;", "new Kernel('a')and$b=new\\Kernel;");
    }

    #[test]
    fn the_line_of_a_piece() {
        let source = "<?php\n/* a\n */ b(\n'c\n', // d\n  e);\n";
        let compacted = compact(source).unwrap();
        for (piece, line) in [("b(", 3), ("'c", 4), ("',", 5), ("e)", 6)] {
            assert_eq!(line_of(source, compacted.find(piece).unwrap()), line, "{piece}");
        }
    }

    #[test]
    fn what_php_alone_can_tell_from_a_comment_is_doubted() {
        for (source, doubt) in [
            ("<?php $a = <<<X\n/*\nX;\n$b = $_SERVER['HTTP_HOST'];", "a heredoc (<<<)"),
            ("<?php $a = <<<'X'\nit's\nX;\n$b = 'https://'.$_SERVER['HTTP_HOST'];", "a heredoc (<<<)"),
            ("<?php // note ?><?php require 'firewall.php';", "text after ?>"),
            ("<?php # note ?><?php require 'firewall.php';", "text after ?>"),
            ("<?php a(); ?> it's /* <?php b();", "text after ?>"),
            ("<?php a(\"{$b[\"//\"]}\"); c();", "a string in a string (\"{$…\"…)"),
            ("<?php `ls /*`; b();", "a command in `"),
            ("<?php a(); /* b", "a comment without an end"),
            ("<?php a('b", "a string without an end"),
            ("<?php a(); __HALT_COMPILER(); $app->run();", "__halt_compiler()"),
            ("/* <?php a();", "text before <?php"),
        ] {
            assert_eq!(compact(source), Err(doubt), "{source}");
            let end: String = source.split_whitespace().last().into_iter().collect();
            assert!(searched(source).ends_with(&end), "{source}");
        }
    }

    #[test]
    fn more_than_is_searched_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("app/Config")).unwrap();
        let large = format!("<?php {}", "// filled\n".repeat(100_000));
        fs::write(root.join("app/Config/a.php"), &large).unwrap();
        let link = |names: std::ops::Range<usize>| {
            for n in names {
                let _ =
                    fs::hard_link(root.join("app/Config/a.php"), root.join(format!("app/Config/z{n}.php")));
            }
        };
        let read = || -> Result<usize, String> {
            let mut sources = Sources::new(root);
            let files = sources.below("app", &[])?;
            files.iter().try_for_each(|file| sources.text(file).map(|_| ()))?;
            Ok(files.len())
        };
        link(0..7);
        assert_eq!(read(), Ok(8));
        link(7..8);
        let why = read().unwrap_err();
        assert!(why.contains("with app/Config/z7.php it is more than 8388608 bytes in 9 files"), "{why}");
        fs::write(root.join("app/Config/a.php"), "<?php").unwrap();
        link(8..499);
        assert_eq!(read(), Ok(500));
        link(499..500);
        let why = read().unwrap_err();
        assert!(why.contains("app/Config/z99.php is file 501, allowed are 500 files"), "{why}");
        link(500..5_000);
        let why = read().unwrap_err();
        assert!(why.contains("app/Config brings its directories to more than 5000 names"), "{why}");
        let deep = root.join("app/Config").join("deep/".repeat(9));
        fs::remove_dir_all(root.join("app")).unwrap();
        fs::create_dir_all(deep).unwrap();
        assert!(read().unwrap_err().contains("deeper than the 8 levels"));
    }
}
