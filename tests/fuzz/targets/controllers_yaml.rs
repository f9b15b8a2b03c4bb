//! Feeds to vipu_client::fuzzing::controllers_yaml whatever leads libFuzzer on.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vipu_client::fuzzing::controllers_yaml(input));
