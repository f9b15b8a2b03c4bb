//! Feeds to ipu_partitions::fuzzing::rest_bodies whatever leads libFuzzer on.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ipu_partitions::fuzzing::rest_bodies(input));
