//! PHP's releases, as far as they were known when Hayate was built (2026-11-19): which one has the newest repairs, and until when there
//! are any.

use std::time::{Duration, SystemTime};

/// A version of PHP, such as 8.2.
struct Version {
    name: &'static str,
    /// The newest release that repaired faults which visitors can use; `None`: not looked up.
    safe: Option<u32>,
    /// The last day of php.net's security support, and the second in which the next one begins (UTC).
    last_day: &'static str,
    ends: u64,
}

const VERSIONS: [Version; 4] = [
    Version { name: "8.2", safe: Some(36), last_day: "2026-12-31", ends: 1_798_761_600 },
    Version { name: "8.3", safe: None, last_day: "2027-12-31", ends: 1_830_297_600 },
    Version { name: "8.4", safe: Some(28), last_day: "2028-12-31", ends: 1_861_920_000 },
    Version { name: "8.5", safe: Some(13), last_day: "2029-12-31", ends: 1_893_456_000 },
];

/// The branches of PHP that are known, such as 8.2, oldest first.
pub fn branches() -> impl Iterator<Item = &'static str> {
    VERSIONS.iter().map(|version| version.name)
}

/// What is wrong with serving by this PHP (such as `8.2.35`) on this day; empty: nothing that was known.
pub fn warnings(php: &str, now: SystemTime) -> Vec<String> {
    let mut parts = php.splitn(3, '.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let release = parts.next().unwrap_or_default();
    let digits = release.find(|c: char| !c.is_ascii_digit()).unwrap_or(release.len());
    let number: Option<u32> = release.get(..digits).and_then(|digits| digits.parse().ok());
    let name = format!("{major}.{minor}");
    let Some(version) = VERSIONS.iter().find(|version| version.name == name) else { return Vec::new() };
    let mut warnings = Vec::new();
    if let (Some(safe), Some(number)) = (version.safe, number)
        && number < safe
    {
        warnings.push(format!(
            "PHP {php} lacks security repairs of PHP {name}.{safe}; install the updates of libphp{name}-embed and of PHP's \
             extensions, and restart"
        ));
    }
    if now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
        >= Duration::from_secs(version.ends)
    {
        warnings.push(format!(
            "php.net has made no security releases of PHP {name} since {}; use a newer version, unless your distribution repairs \
             this one by itself",
            version.last_day
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(day: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(day)
    }

    #[test]
    fn an_old_release_and_the_end_of_support_are_told() {
        let november = on(1_795_000_000);
        assert!(warnings("8.2.36", november).is_empty());
        assert!(warnings("8.4.29", november).is_empty());
        let said = warnings("8.4.27", november);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("PHP 8.4.28") && said[0].contains("libphp8.4-embed"), "{said:?}");
        assert!(warnings("8.5.0RC2", november)[0].contains("8.5.13"));
        assert!(warnings("8.2.36", on(1_798_761_599)).is_empty());
        assert!(warnings("8.2.40", on(1_798_761_600))[0].contains("since 2026-12-31"));
        assert_eq!(warnings("8.2.35", on(1_798_761_600)).len(), 2);
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        for odd in ["", "8", "8.2", "8.2.", "8.2.x", "9.0.1", "..", "8.2.99999999999"] {
            assert!(warnings(odd, on(0)).is_empty(), "{odd}");
        }
    }
}
