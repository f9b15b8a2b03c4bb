//! Calls ipu_rest::fuzzing::rest_bodies with the inputs of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ipu_rest::fuzzing::rest_bodies(input));
