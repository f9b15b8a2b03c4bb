//! Reads the first inputs of a fuzz target, for the unit tests of the packages whose code the
//! target calls.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files of a target's folder of seeds, with their bytes.
pub(super) fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/seeds");
    let files = fs::read_dir(folder.join(target)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let seeds: Vec<_> = files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    assert!(seeds.len() > 2, "{target} has too few seeds");
    seeds
}
