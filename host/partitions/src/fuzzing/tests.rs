//! Runs the fuzz targets on their seeds, so that a fixed bug stays fixed where no nightly compiler is installed.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/seeds");
    let files = fs::read_dir(folder.join(target)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let seeds: Vec<_> = files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    assert!(seeds.len() > 2, "{target} begins with next to nothing");
    seeds
}

#[test]
fn seeds_of_rest_bodies() {
    for (_, seed) in seeds("rest_bodies") {
        rest_bodies(&seed);
    }
}

#[test]
fn seeds_of_partition_status_can_be_read() {
    for (path, seed) in seeds("partition_status") {
        let object = serde_json::from_slice::<IPUPartition>(&seed);
        assert!(object.is_ok(), "{}: {object:?}", path.display());
        partition_status(&seed);
    }
}
