//! Runs the fuzz targets on their seeds, so that a fixed bug stays fixed where no nightly compiler
//! is installed.

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use self::seeds::seeds;
use super::*;

#[test]
fn seeds_of_partition_status_can_be_read() {
    for (path, seed) in seeds("partition_status") {
        let object = serde_json::from_slice::<IPUPartition>(&seed);
        assert!(object.is_ok(), "{}: {object:?}", path.display());
        partition_status(&seed);
    }
}
