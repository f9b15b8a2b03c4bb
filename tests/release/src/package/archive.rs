//! Packed folders: sorted, with one owner and one time, so that the bytes are always the same.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use cluster::files::{At, FileError};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

/// Files by their path in a folder, with `/` between its parts.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Adds a file, or all files of a folder, under a name.
pub fn add(files: &mut Files, path: &Path, name: &str) -> Result<(), FileError> {
    if !path.is_dir() {
        let content = fs::read(path).at("read", path)?;
        files.insert(name.to_owned(), content);
        return Ok(());
    }
    for entry in fs::read_dir(path).at("read", path)? {
        let entry = entry.at("read", path)?.path();
        let inner = entry.file_name().unwrap_or_default().to_string_lossy();
        add(files, &entry, &format!("{name}/{inner}"))?;
    }
    Ok(())
}

/// The folder of the programs in a package.
pub const PROGRAMS: &str = "bin/";

/// Packs files, with a prefix of their paths. `time` is in seconds since 1970. Files in the folder
/// of programs are executable.
pub fn tar_gz(files: &Files, prefix: &str, time: u64) -> io::Result<Vec<u8>> {
    // This header contains neither the time nor the kind of machine.
    let packed = GzEncoder::new(Vec::new(), Compression::default());
    let mut tar = tar::Builder::new(packed);
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        let is_program = name.starts_with(PROGRAMS);
        header.set_mode(if is_program { 0o755 } else { 0o644 });
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        tar.append_data(&mut header, format!("{prefix}{name}"), content.as_slice())?;
    }
    tar.into_inner()?.finish()
}

/// Unpacks an archive into a folder.
pub fn unpack(archive: &Path, into: &Path) -> Result<(), FileError> {
    let file = File::open(archive).at("read", archive)?;
    let mut tar = tar::Archive::new(GzDecoder::new(BufReader::new(file)));
    tar.unpack(into).at("unpack", archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_files_does_not_change_the_bytes() {
        let long = "folder/".repeat(30) + "file";
        let one = [("b".to_owned(), b"2".to_vec()), (long, b"1".to_vec())];
        let mut other = one.clone();
        other.reverse();
        let pack = |files: [(String, Vec<u8>); 2]| tar_gz(&Files::from(files), "p/", 7).unwrap();
        let packed = pack(one.clone());
        assert_eq!(packed, pack(other));
        assert_ne!(packed, tar_gz(&Files::from(one.clone()), "p/", 8).unwrap());

        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("p.tar.gz");
        fs::write(&archive, packed).unwrap();
        unpack(&archive, dir.path()).unwrap();
        let mut found = Files::new();
        add(&mut found, &dir.path().join("p"), "x").unwrap();
        let expected = one.map(|(name, content)| (format!("x/{name}"), content));
        assert_eq!(found, Files::from(expected));
    }

    #[test]
    fn owner_mode_and_time_are_fixed() {
        let files = ["a", "bin/b"].map(|name| (name.to_owned(), Vec::new()));
        let packed = tar_gz(&Files::from(files), "", 7).unwrap();
        let mut tar = tar::Archive::new(GzDecoder::new(packed.as_slice()));
        let mut entries = tar.entries().unwrap();
        for mode in [0o644, 0o755] {
            let header = entries.next().unwrap().unwrap().header().clone();
            let owner = (header.uid().unwrap(), header.gid().unwrap());
            assert_eq!(owner, (0, 0));
            assert_eq!(header.mode().unwrap(), mode);
            assert_eq!(header.mtime().unwrap(), 7);
        }
    }
}
