//! Hosts, and what proxies say of a client. The promises are in the crate's own `fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hayate_front::fuzzed::forwarded(input));
