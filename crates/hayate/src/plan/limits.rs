//! `[limits]`: defaults, and the ranges in which the front can keep what it promises.

use std::{fmt::Display, ops::RangeInclusive};

use hayate_front::Limits;

use crate::config::{self, ConfigError, Source, Step};

pub(super) fn resolve(source: &Source, file: &config::Limits) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let time = |value, default| super::time(value, default).unwrap_or(super::ALWAYS).min(super::ALWAYS);
    let within = Within { source };
    let size = |key, value: Option<config::Size>, default, range, words| {
        let value = value.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
        within.check(key, value, default, range, words)
    };
    Ok(Limits {
        head_size: size("head_size", file.head_size, default.head_size, Limits::HEAD_SIZE, "1K to 1M")?,
        header_count: within.check(
            "header_count",
            file.header_count,
            default.header_count,
            Limits::HEADER_COUNT,
            "1 to 10000",
        )?,
        uri_length: size(
            "uri_length",
            file.uri_length,
            default.uri_length,
            Limits::URI_LENGTH,
            "64 to 65534",
        )?,
        body_size: file.body_size.map_or(default.body_size, |size| size.0),
        handshake_timeout: time(file.handshake_timeout, default.handshake_timeout),
        header_timeout: time(file.header_timeout, default.header_timeout),
        idle_timeout: time(file.idle_timeout, default.idle_timeout),
        body_timeout: time(file.body_timeout, default.body_timeout),
        body_rate: file.body_rate.map_or(default.body_rate, |size| size.0),
        write_timeout: time(file.write_timeout, default.write_timeout),
        write_rate: file.write_rate.map_or(default.write_rate, |size| size.0),
        http2_streams: within.check(
            "http2_streams",
            file.http2_streams,
            default.http2_streams,
            1..=10_000,
            "1 to 10000",
        )?,
        http2_window: u32::try_from(size(
            "http2_window",
            file.http2_window,
            default.http2_window as usize,
            64 << 10..=16 << 20,
            "64K to 16M",
        )?)
        .unwrap_or(default.http2_window),
        http2_send_buffer: size(
            "http2_send_buffer",
            file.http2_send_buffer,
            default.http2_send_buffer,
            64 << 10..=64 << 20,
            "64K to 64M",
        )?,
        http2_resets: within.check(
            "http2_resets",
            file.http2_resets,
            default.http2_resets,
            1..=10_000,
            "1 to 10000",
        )?,
        http2_frame_budget: match file.http2_frame_budget {
            None => None,
            budget => Some(size("http2_frame_budget", budget, 0, 16 << 10..=64 << 20, "16K to 64M")?),
        },
        http2_errors: within.check(
            "http2_errors",
            file.http2_errors,
            default.http2_errors,
            1..=1_000_000,
            "1 to 1000000",
        )?,
        gather_memory: size(
            "gather_memory",
            file.gather_memory,
            default.gather_memory,
            1 << 20..=1 << 40,
            "1M or more",
        )?,
        answer_memory: match file.answer_memory {
            Some(config::Size(0)) => 0,
            memory => {
                size("answer_memory", memory, default.answer_memory, 4 << 20..=1 << 40, "4M or more, or 0")?
            }
        },
        temp_size: file.temp_size.map_or(default.temp_size, |size| size.0),
        temp_size_per_client: file.temp_size_per_client.map_or(default.temp_size_per_client, |size| size.0),
        connections: within.check(
            "connections",
            file.connections,
            default.connections,
            1..=1_000_000,
            "1 to 1000000",
        )?,
        connections_by_address: within.check(
            "connections_by_address",
            file.connections_by_address,
            default.connections_by_address,
            0..=1_000_000,
            "1 to 1000000, or 0 for no limit",
        )?,
        requests_by_address: within.check(
            "requests_by_address",
            file.requests_by_address,
            default.requests_by_address,
            0..=1_000_000,
            "1 to 1000000, or 0 for no limit",
        )?,
    })
}

struct Within<'a> {
    source: &'a Source,
}

impl Within<'_> {
    fn check<T: PartialOrd + Display>(
        &self,
        key: &str,
        value: Option<T>,
        default: T,
        range: RangeInclusive<T>,
        words: &str,
    ) -> Result<T, ConfigError> {
        match value {
            None => Ok(default),
            Some(value) if range.contains(&value) => Ok(value),
            Some(value) => Err(self.source.error(
                &[Step::Key("limits"), Step::Key(key)],
                format!("{key}: {value} is out of range; write {words}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn limits(text: &str) -> Result<Limits, String> {
        let (source, file) = Source::parse(Path::new("hayate.toml"), format!("[limits]\n{text}\n")).unwrap();
        resolve(&source, &file.limits).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_front_could_not_keep_is_refused() {
        for (text, key) in [
            ("header_count = 32769", "header_count"),
            ("header_count = 10001", "header_count"),
            ("header_count = 0", "header_count"),
            ("head_size = '2M'", "head_size"),
            ("head_size = 10", "head_size"),
            ("uri_length = '64K'", "uri_length"),
            ("uri_length = 0", "uri_length"),
            ("http2_frame_budget = '1K'", "http2_frame_budget"),
            ("http2_frame_budget = '65M'", "http2_frame_budget"),
            ("http2_errors = 0", "http2_errors"),
            ("connections = 0", "connections"),
            ("connections = 1000001", "connections"),
            ("connections_by_address = 1000001", "connections_by_address"),
            ("requests_by_address = 1000001", "requests_by_address"),
        ] {
            let said = limits(text).unwrap_err();
            assert!(said.starts_with(&format!("hayate.toml:2: {key}: ")), "{said}");
            assert!(said.contains("out of range; write "), "{said}");
        }
        assert_eq!(limits("header_count = 10000").unwrap().header_count, 10_000);
        assert_eq!(limits("head_size = '1M'").unwrap().head_size, 1 << 20);
        assert_eq!(limits("http2_frame_budget = '64M'").unwrap().http2_frame_budget, Some(64 << 20));
        assert_eq!(limits("http2_window = '1M'").unwrap().http2_frame_budget, None);
    }
}
