//! Schedules that nobody would write: each is refused with its place, or can be walked through.

use std::time::Duration;

use hayate_load::{Schedule, parse_duration};

#[test]
fn schedules() {
    let seeds: [&[u8]; 6] = [
        b"line(1, 100, 30s)",
        b"const(0.5, 1h30m), const(0, 10s)",
        b"step(10, 50, 10, 1m) line(5,1,10ms)",
        b"const(1e3, 2d)",
        b"  step( 1 , 1 , 1 , 1 ) ,",
        "const(1, 1\u{b5}s)".as_bytes(),
    ];
    let pieces: [&[u8]; 16] = [
        b"(",
        b")",
        b",",
        b" ",
        b".",
        b"e",
        b"-",
        b"1e308",
        b"0",
        b"99999999999999999999",
        b"nan",
        b"inf",
        b"ms",
        b"h",
        b"step(",
        "\u{fc}".as_bytes(),
    ];
    hayate_fuzz::run("schedules", &seeds, &pieces, |_, input| {
        let text = String::from_utf8_lossy(input);
        let _ = parse_duration(&text).map_err(|error| error.to_string());
        match Schedule::parse(&text) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(schedule) => {
                let mut last = Duration::ZERO;
                for shot in schedule.walk(0, 1).take(200) {
                    assert!(shot.due >= last && shot.due <= schedule.duration(), "{shot:?} of {text}");
                    last = shot.due;
                }
                let _ = schedule.rate_at(schedule.duration() / 2);
            }
        }
    });
}
