//! `[compression]`: defaults and ranges.

use hayate_front::{Coding, Compression};

use crate::config::{self, CodingChoice, ConfigError, Source, Step};

/// What packs well and is common. Pictures, films, archives and WOFF are packed already.
const TYPES: [&str; 17] = [
    "text/*",
    "application/json",
    "application/*+json",
    "application/x-ndjson",
    "application/xml",
    "application/*+xml",
    "application/javascript",
    "application/x-javascript",
    "application/graphql",
    "application/wasm",
    "application/vnd.ms-fontobject",
    "font/ttf",
    "font/otf",
    "image/svg+xml",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
];

/// `None`: nothing is compressed.
pub(super) fn resolve(
    source: &Source,
    file: &config::Compression,
) -> Result<Option<Compression>, ConfigError> {
    let error = |key: &str, why: String| {
        source.error(&[Step::Key("compression"), Step::Key(key)], format!("{key}: {why}"))
    };
    let level = |key: &str, coding, wanted: Option<u32>, default| {
        let range = Compression::levels(coding);
        match wanted {
            None => Ok(default),
            Some(wanted) if range.contains(&wanted) => Ok(wanted),
            Some(wanted) => Err(error(
                key,
                format!("{wanted} is out of range; write {} to {}", range.start(), range.end()),
            )),
        }
    };
    let levels = [
        (CodingChoice::Zstd, Coding::Zstd, level("zstd_level", Coding::Zstd, file.zstd_level, 3)?),
        (CodingChoice::Br, Coding::Brotli, level("br_level", Coding::Brotli, file.br_level, 4)?),
        (CodingChoice::Gzip, Coding::Gzip, level("gzip_level", Coding::Gzip, file.gzip_level, 5)?),
    ];
    let wanted =
        file.codings.as_deref().unwrap_or(&[CodingChoice::Zstd, CodingChoice::Br, CodingChoice::Gzip]);
    if wanted.is_empty() {
        return Err(error("codings", "is empty; name zstd, br or gzip, or write enabled = false".into()));
    }
    let mut codings = Vec::new();
    for choice in wanted {
        let found = levels.iter().find(|(known, ..)| known == choice);
        let Some((_, coding, level)) =
            found.filter(|(_, coding, _)| codings.iter().all(|(c, _)| c != coding))
        else {
            return Err(error("codings", "a coding is named twice; name each once".into()));
        };
        codings.push((*coding, *level));
    }
    let types = match &file.types {
        None => TYPES.map(str::to_owned).to_vec(),
        Some(types) => {
            let is_type = |kind: &String| {
                let plain = kind.bytes().all(|b| b.is_ascii_graphic() && !b";,\"".contains(&b));
                plain && kind.matches('/').count() == 1 && kind.matches('*').count() <= 1
            };
            if let Some(kind) = types.iter().find(|kind| !is_type(kind)) {
                return Err(error(
                    "types",
                    format!("'{kind}' is no media type; write text/html, text/* or application/*+json"),
                ));
            }
            types.iter().map(|kind| kind.to_ascii_lowercase()).collect()
        }
    };
    let min_size = file.min_size.map_or(1 << 10, |size| size.0);
    let memory = file.memory.map_or(256 << 20, |size| size.0);
    Ok(file.enabled.unwrap_or(true).then_some(Compression { codings, min_size, memory, types }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn compression(text: &str) -> Result<Option<Compression>, String> {
        let parsed = Source::parse(Path::new("hayate.toml"), format!("[compression]\n{text}\n"));
        let (source, file) = parsed.map_err(|error| error.to_string())?;
        resolve(&source, &file.compression).map_err(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_remedy() {
        for (text, said) in [
            ("zstd_level = 16", "zstd_level: 16 is out of range; write 1 to 15"),
            ("br_level = 10", "br_level: 10 is out of range; write 0 to 9"),
            ("gzip_level = 0", "gzip_level: 0 is out of range; write 1 to 9"),
            ("codings = []", "codings: is empty; name zstd, br or gzip, or write enabled = false"),
            ("codings = ['gzip', 'gzip']", "codings: a coding is named twice; name each once"),
            (
                "types = ['html']",
                "types: 'html' is no media type; write text/html, text/* or application/*+json",
            ),
            (
                "types = ['*/*']",
                "types: '*/*' is no media type; write text/html, text/* or application/*+json",
            ),
        ] {
            assert_eq!(compression(text).unwrap_err(), format!("hayate.toml:2: {said}"), "{text}");
        }
        assert!(compression("codings = ['lzma']").is_err());
    }

    #[test]
    fn it_is_on_by_default() {
        let default = compression("").unwrap().unwrap();
        assert_eq!(default.codings, [(Coding::Zstd, 3), (Coding::Brotli, 4), (Coding::Gzip, 5)]);
        assert_eq!(default.min_size, 1024);
        assert_eq!(compression("enabled = false").unwrap(), None);
        let own =
            compression("codings = ['gzip', 'br']\ngzip_level = 9\ntypes = ['Text/HTML']\nmin_size = 20")
                .unwrap()
                .unwrap();
        assert_eq!(own.codings, [(Coding::Gzip, 9), (Coding::Brotli, 4)]);
        assert_eq!((own.types, own.min_size), (vec!["text/html".to_owned()], 20));
    }
}
