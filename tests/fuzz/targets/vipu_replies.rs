//! Calls vipu_client::fuzzing::vipu_replies with the inputs of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vipu_client::fuzzing::vipu_replies(input));
