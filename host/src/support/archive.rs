//! Pure: files as a tar archive, packed by gzip.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

/// The folder that everything is in.
const FOLDER: &str = "ipu-operator-support";

/// Archives these files, each with its path and text, with this time in seconds.
pub(super) fn packed(files: &[(String, String)], seconds: u64) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, text) in files {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(seconds);
        builder.append_data(&mut header, format!("{FOLDER}/{path}"), text.as_bytes())?;
    }
    builder.into_inner()?.finish()
}
