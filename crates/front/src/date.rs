//! Dates as HTTP and access logs write them, from clocks and files that may say anything.
//!
//! It promises an answer for every second there is. (httpdate panics outside of the years 1970 to 9999, and a file's time is whatever
//! somebody gave to touch(1).)

use std::time::{Duration, SystemTime};

/// The last second of the year 9999, the last that HTTP can write (RFC 9110, 5.6.7).
const LAST: u64 = 253_402_300_799;

/// Seconds since 1970 as an HTTP date; `None` for what HTTP cannot write: before 1970, and after 9999.
pub(crate) fn http(seconds: i64) -> Option<String> {
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds <= LAST)?;
    Some(httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// An HTTP date, in any of its three forms, as seconds since 1970.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(text).ok()?;
    i64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// Seconds since 1970; 0 when the clock is set before that, and the last second of 9999 when it is set after.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs().min(LAST)).unwrap_or_default()
}

/// The present time as the combined format has it: "21/Nov/2026:01:02:03 +0000".
pub(crate) fn clf_now() -> String {
    clf(now())
}

fn clf(seconds: i64) -> String {
    let http = http(seconds).unwrap_or_default(); // "Sat, 21 Nov 2026 01:02:03 GMT"
    let mut parts = http.split(' ').skip(1);
    let mut part = || parts.next().unwrap_or("-");
    let (day, month, year, time) = (part(), part(), part(), part());
    format!("{day}/{month}/{year}:{time} +0000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_http_cannot_write_has_no_date() {
        assert_eq!(http(0).as_deref(), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
        assert_eq!(http(LAST as i64).as_deref(), Some("Fri, 31 Dec 9999 23:59:59 GMT"));
        for seconds in [-1, LAST as i64 + 1, i64::MIN, i64::MAX] {
            assert_eq!(http(seconds), None, "{seconds}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for seconds in [0, 1, 951_782_400, 1_795_000_000, LAST as i64] {
            assert_eq!(parse(&http(seconds).unwrap()), Some(seconds));
        }
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), Some(784_111_777));
        for text in ["", "Sat", "Fri, 31 Feb 1994 00:00:00 GMT", "Fri, 31 Dec 99999 23:59:59 GMT", "\u{e4}"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_combined_format() {
        assert_eq!(clf(784_111_777), "06/Nov/1994:08:49:37 +0000");
    }
}
