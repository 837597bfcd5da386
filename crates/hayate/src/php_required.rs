//! Which PHP a project's composer.json and composer.lock ask for, and whether this one is it, for `hayate check`.
//!
//! Only files are read. It warns and refuses nothing: Composer's own check of the platform, which `vendor/autoload.php` runs, may be
//! switched off. A constraint that is not understood is none.

use std::{cmp::Ordering, path::Path};

use crate::{composer, terminal};

/// Major, minor and release.
type Version = [u32; 3];

/// Versions that there are packages of hosts for, with a release that is newer than any.
const OTHERS: [Version; 3] = [[8, 2, u32::MAX], [8, 4, u32::MAX], [8, 5, u32::MAX]];

/// A line for whoever asks for another PHP than `running`, such as `8.4.28`. `pool`: the application in whose workers the project runs.
pub fn unmet(root: &Path, pool: Option<&str>, running: &str) -> Option<String> {
    let version = Partial::parse(running)?.least();
    // What cannot be read is told by who looks for extensions.
    let read = |name: &str| composer::read(root, name).ok().flatten().unwrap_or_default();
    let (composer, lock) = (read("composer.json"), read("composer.lock"));
    let project = (composer.pointer("/require/php"), "composer.json");
    let packages = lock.get("packages").and_then(|packages| packages.as_array()).into_iter().flatten();
    let others = packages.map(|package| {
        let name = package.get("name").and_then(|name| name.as_str());
        (package.pointer("/require/php"), name.unwrap_or("a package of composer.lock"))
    });
    let asked: Vec<(&str, &str)> = std::iter::once(project)
        .chain(others)
        .filter_map(|(constraint, who)| Some((constraint?.as_str()?, who)))
        .collect();
    let suits =
        |version: Version| move |(constraint, _): &&(&str, &str)| is_met(constraint, version).unwrap_or(true);
    let (constraint, who) = asked.iter().find(|one| !suits(version)(one))?;
    let remedy = match OTHERS.into_iter().find(|other| asked.iter().all(|one| suits(*other)(&one))) {
        Some([major, minor, _]) => {
            let of_pool = pool.map(|pool| format!(" of '{pool}', in whose workers it runs"));
            format!(
                "set php = \"{major}.{minor}\"{} (package hayate-php{major}.{minor}, {})",
                of_pool.unwrap_or_default(),
                where_it_is(minor)
            )
        }
        None => "install its packages with this PHP: composer update".to_owned(),
    };
    Some(format!(
        "{} requires PHP {}, and this is {running}, with which vendor/autoload.php may refuse to run; {remedy}",
        terminal::word(who),
        terminal::word(constraint)
    ))
}

/// Which Debian has the package of PHP 8's branch.
fn where_it_is(minor: u32) -> &'static str {
    match minor {
        ..=3 => "of Debian 12",
        4 => "of Debian 13",
        _ => "of no stable Debian yet",
    }
}

/// Whether a constraint of Composer's allows a version (getcomposer.org, "Versions and constraints"). `None`: it is not understood.
fn is_met(constraint: &str, version: Version) -> Option<bool> {
    let mut met = false;
    for alternative in constraint.split('|').map(str::trim).filter(|text| !text.is_empty()) {
        met |= all_met(alternative, version)?;
    }
    Some(met)
}

/// Constraints with spaces or commas between them, or a range with a hyphen.
fn all_met(text: &str, version: Version) -> Option<bool> {
    if let Some((from, to)) = text.split_once(" - ") {
        let (from, to) = (Partial::parse(from.trim())?, Partial::parse(to.trim())?);
        return Some(version >= from.least() && version < to.next(to.given));
    }
    let mut met = true;
    let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let number = word.trim_start_matches(['<', '>', '=', '!', '^', '~']);
        let operator = word.get(..word.len() - number.len())?;
        // A space may follow an operator.
        let number = if number.is_empty() { words.next()? } else { number };
        met &= one_met(operator, number, version)?;
    }
    Some(met)
}

fn one_met(operator: &str, number: &str, version: Version) -> Option<bool> {
    if number == "*" {
        return Some(true);
    }
    let asked = Partial::parse(number)?;
    let (least, order) = (asked.least(), version.cmp(&asked.least()));
    Some(match operator {
        "" | "=" | "==" if asked.wildcard => version >= least && version < asked.next(asked.given),
        "" | "=" | "==" => order == Ordering::Equal,
        "!=" | "<>" if asked.wildcard => version < least || version >= asked.next(asked.given),
        "!=" | "<>" => order != Ordering::Equal,
        ">=" => order != Ordering::Less,
        ">" => order == Ordering::Greater,
        "<=" => order != Ordering::Greater,
        "<" => order == Ordering::Less,
        // The last number that is given may grow, the major one alone by itself too.
        "~" => version >= least && version < asked.next(asked.given.saturating_sub(1).max(1)),
        "^" => version >= least && version < asked.next(1),
        _ => return None,
    })
}

/// A version of which one number is given, or two, or three.
struct Partial {
    numbers: Version,
    given: usize,
    /// `8.*`: whatever follows.
    wildcard: bool,
}

impl Partial {
    /// Stability flags and suffixes (`8.3@dev`, `8.4.0-dev`, `8.5.0RC1`) are left out.
    fn parse(text: &str) -> Option<Partial> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end =
            text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '*' | 'x'))).unwrap_or(text.len());
        let mut partial = Partial { numbers: [0; 3], given: 0, wildcard: false };
        let mut parts = text.get(..end)?.split('.');
        for number in &mut partial.numbers {
            match parts.next() {
                None => break,
                Some("*" | "x") => {
                    partial.wildcard = true;
                    break;
                }
                Some(digits) => *number = digits.parse().ok()?,
            }
            partial.given += 1;
        }
        (partial.given > 0).then_some(partial)
    }

    fn least(&self) -> Version {
        self.numbers
    }

    /// The first version whose leading numbers, so many of them, are greater.
    fn next(&self, leading: usize) -> Version {
        let mut next = [0; 3];
        for (at, (next, number)) in next.iter_mut().zip(self.numbers).enumerate().take(leading) {
            *next = if at + 1 == leading { number.saturating_add(1) } else { number };
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn constraints_as_composer_reads_them() {
        for (constraint, version, expected) in [
            (">=8.1", [8, 2, 36], Some(true)),
            (">= 8.3", [8, 2, 36], Some(false)),
            ("^8.1", [8, 4, 0], Some(true)),
            ("^8.3", [8, 2, 36], Some(false)),
            ("^7.4 || ^8.0", [8, 2, 36], Some(true)),
            ("^7.4|^8.3", [8, 2, 36], Some(false)),
            ("~8.1", [8, 9, 0], Some(true)),
            ("~8.1", [9, 0, 0], Some(false)),
            ("~8.1.2", [8, 2, 0], Some(false)),
            ("~8.1.2", [8, 1, 30], Some(true)),
            ("~8.1.0 || ~8.2.0 || ~8.3.0", [8, 4, 1], Some(false)),
            ("~8", [8, 4, 1], Some(true)),
            ("8.*", [8, 2, 36], Some(true)),
            ("8.2.*", [8, 3, 0], Some(false)),
            ("*", [5, 0, 0], Some(true)),
            ("8.2", [8, 2, 1], Some(false)),
            ("8.2.36", [8, 2, 36], Some(true)),
            (">=7.1,<8.3", [8, 3, 1], Some(false)),
            (">7.1 <8.3", [8, 2, 1], Some(true)),
            ("<=8.2.35", [8, 2, 36], Some(false)),
            (">=8.0 !=8.2.36", [8, 2, 36], Some(false)),
            ("!=8.2.*", [8, 2, 36], Some(false)),
            ("8.1 - 8.3", [8, 3, 20], Some(true)),
            ("8.1 - 8.3.1", [8, 3, 20], Some(false)),
            ("^8.2@dev", [8, 2, 36], Some(true)),
            ("dev-main", [8, 2, 36], None),
            (">=8.2 nonsense", [8, 2, 36], None),
            ("^", [8, 2, 36], None),
            ("~99999999999", [8, 2, 36], None),
            ("^4294967295", [8, 2, 36], Some(false)),
        ] {
            assert_eq!(is_met(constraint, version), expected, "{constraint} {version:?}");
        }
    }

    #[test]
    fn who_asks_and_what_helps() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(unmet(dir.path(), None, "8.2.36"), None);
        write("composer.json", r#"{"require": {"php": "^8.1"}}"#);
        write(
            "composer.lock",
            r#"{"packages": [{"name": "a/b", "require": {"php": ">=8.4"}}, {"name": 3}]}"#,
        );
        assert_eq!(unmet(dir.path(), None, "8.4.28"), None);
        assert_eq!(
            unmet(dir.path(), None, "8.2.36").unwrap(),
            "a/b requires PHP >=8.4, and this is 8.2.36, with which vendor/autoload.php may refuse to run; \
             set php = \"8.4\" (package hayate-php8.4, of Debian 13)"
        );
        assert!(unmet(dir.path(), Some("main"), "8.2.36").unwrap().ends_with(
            "set php = \"8.4\" of 'main', in whose workers it runs (package hayate-php8.4, of Debian 13)"
        ));
        write("composer.json", r#"{"require": {"php": "^7.4"}}"#);
        assert!(unmet(dir.path(), None, "8.2.36").unwrap().starts_with("composer.json requires PHP ^7.4, "));
        assert!(unmet(dir.path(), None, "8.2.36").unwrap().ends_with("composer update"));
        write("composer.json", r#"{"require": {"php": ["^7.4"]}}"#);
        write("composer.lock", "no JSON");
        assert_eq!(unmet(dir.path(), None, "8.2.36"), None);
    }
}
