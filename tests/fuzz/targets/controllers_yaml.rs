//! Calls vipu_client::fuzzing::controllers_yaml with the inputs of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vipu_client::fuzzing::controllers_yaml(input));
