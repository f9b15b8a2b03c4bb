//! Calls partition_simulation::fuzzing::partition_status with the inputs of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| partition_simulation::fuzzing::partition_status(input));
