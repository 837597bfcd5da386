//! A header that a proxy puts before a connection. The promises are in the crate's own `fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hayate_http::fuzzed::proxy_header(input));
