//! What a process' memory consists of, from /proc/PID/smaps (proc(5)).

use std::{collections::BTreeMap, fs, io, path::Path};

use serde::Serialize;

/// Bytes of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// For people.
    pub kind: &'static str,
    /// Resident bytes that belong to the process, or are copied when it writes them.
    pub own: u64,
    /// Resident bytes.
    pub resident: u64,
}

/// The memory of a process by kind, largest first.
pub fn by_kind(pid: i32) -> io::Result<Vec<Kind>> {
    Ok(parse(&fs::read_to_string(format!("/proc/{pid}/smaps"))?))
}

fn parse(smaps: &str) -> Vec<Kind> {
    let mut sums: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
    let mut kind = "other";
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(first), Some(second)) = (fields.next(), fields.next()) else { continue };
        if let Some(name) = first.strip_suffix(':') {
            let bytes = second.parse::<u64>().unwrap_or(0) * 1024;
            let sum = sums.entry(kind).or_default();
            match name {
                "Anonymous" => sum.0 += bytes,
                "Rss" => sum.1 += bytes,
                _ => {}
            }
        } else if first.contains('-') {
            // ADDRESSES PERMISSIONS OFFSET DEVICE INODE PATH
            kind = kind_of(second, fields.nth(3).unwrap_or_default());
        }
    }
    let mut kinds: Vec<Kind> = sums
        .into_iter()
        .filter(|(_, (own, resident))| own + resident > 0)
        .map(|(kind, (own, resident))| Kind { kind, own, resident })
        .collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.resident));
    kinds
}

fn kind_of(permissions: &str, path: &str) -> &'static str {
    match path {
        "" | "[anon:zend_alloc]" => "PHP and anonymous",
        "[heap]" => "malloc",
        "[stack]" => "stack",
        path if path.starts_with('[') => "other",
        // OPcache's and APCu's, and the ring.
        _ if permissions.ends_with('s') => "shared with other processes",
        path if Path::new(path).is_absolute() => "programs and libraries",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_summed() {
        let smaps = "\
7f00-7f10 rw-p 00000000 00:00 0 \nSize: 64 kB\nRss: 60 kB\nAnonymous: 60 kB\nVmFlags: rd wr\n\
7f20-7f30 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\nAnonymous: 8 kB\n\
7f40-7f50 r-xp 00000000 fe:00 12 /usr/lib/libphp8.2.so\nRss: 100 kB\nAnonymous: 0 kB\n\
7f60-7f70 rw-p 00000000 fe:00 12 /usr/lib/libphp8.2.so\nRss: 20 kB\nAnonymous: 12 kB\n\
7f80-7f90 rw-s 00000000 00:01 9 /dev/zero (deleted)\nRss: 40 kB\nAnonymous: 0 kB\n";
        let kinds = parse(smaps);
        let find =
            |kind: &str| kinds.iter().find(|k| k.kind == kind).map(|k| (k.own / 1024, k.resident / 1024));
        assert_eq!(kinds[0].kind, "programs and libraries");
        assert_eq!(find("programs and libraries"), Some((12, 120)));
        assert_eq!(find("PHP and anonymous"), Some((60, 60)));
        assert_eq!(find("malloc"), Some((8, 8)));
        assert_eq!(find("shared with other processes"), Some((0, 40)));
    }

    #[test]
    fn this_process_has_memory() {
        let kinds = by_kind(std::process::id() as i32).unwrap();
        assert!(
            kinds.iter().any(|kind| kind.kind == "programs and libraries" && kind.resident > 0),
            "{kinds:?}"
        );
    }
}
