//! Feeds to ipu_partitions::fuzzing::partition_status whatever leads libFuzzer on.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ipu_partitions::fuzzing::partition_status(input));
