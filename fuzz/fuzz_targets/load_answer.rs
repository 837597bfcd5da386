//! A server's answer to the load generator. The promises are in the crate's own `fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hayate_load::fuzzed::answer(input));
