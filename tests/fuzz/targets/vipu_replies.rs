//! Feeds to ipu_operator::fuzzing::vipu_replies whatever leads libFuzzer on.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ipu_operator::fuzzing::vipu_replies(input));
