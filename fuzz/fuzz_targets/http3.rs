//! Requests, control streams and field sections of HTTP/3. The promises are in the crate's own `fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hayate_http::fuzzed::http3(input));
