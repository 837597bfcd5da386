//! The Date header, made once a second for each thread.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

/// The last second that HTTP can write: the end of the year 9999 (RFC 9110, 5.6.7).
const LAST: u64 = 253_402_300_799;

thread_local! {
    static NOW: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
}

/// Appends `Date: …` and its line end. The clock may be set to anything, and back.
pub(crate) fn append(to: &mut Vec<u8>) {
    // The coarse clock: up to a tick late, at a fifth of the price. By libc, so that tests can set it.
    // SAFETY: nothing is written through a null pointer, which is allowed (time(2)).
    let seconds = unsafe { libc::time(std::ptr::null_mut()) };
    let seconds = u64::try_from(seconds).unwrap_or_default().min(LAST);
    NOW.with_borrow_mut(|(at, line)| {
        if *at != seconds {
            *at = seconds;
            let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            *line = format!("Date: {date}\r\n");
        }
        to.extend_from_slice(line.as_bytes());
    });
}
