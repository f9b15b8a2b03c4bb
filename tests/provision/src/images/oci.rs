//! OCI archives: a layer, a configuration and an index in a tar file, the same bytes every time.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    files::{At, FileError, read, sha256, sha256_of},
    platform::AMD64,
};

/// Content of the file that marks an OCI layout.
const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

/// Default command of a container of the image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// The command.
    pub entrypoint: Vec<String>,
    /// Environment variables, `NAME=value`.
    pub env: Vec<String>,
    /// User id and group id.
    pub user: Option<String>,
}

impl ImageConfig {
    /// An image that runs this command.
    pub fn entrypoint(command: &[&str]) -> Self {
        Self {
            entrypoint: command.iter().map(|&word| word.to_owned()).collect(),
            ..Self::default()
        }
    }
}

/// A file of a layer.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Path in the image, without a leading slash.
    pub path: &'a str,
    /// Path of the content on this machine.
    pub source: &'a Path,
    /// Permission bits.
    pub mode: u32,
}

impl<'a> Entry<'a> {
    /// A file that may be executed.
    pub fn program(path: &'a str, source: &'a Path) -> Self {
        Self {
            path,
            source,
            mode: 0o755,
        }
    }
}

/// Writes a layer with these files into `dir`. Owner and times are fixed.
pub fn layer(dir: &Path, entries: &[Entry<'_>]) -> Result<PathBuf, FileError> {
    let path = dir.join("layer.tar");
    let mut tar = tar::Builder::new(File::create(&path).at("write", &path)?);
    for entry in entries {
        let file = File::open(entry.source).at("read", entry.source)?;
        let size = file.metadata().at("read", entry.source)?.len();
        let mut header = header(size, entry.mode);
        tar.append_data(&mut header, entry.path, file)
            .at("write", &path)?;
    }
    finish(tar, &path)?;
    Ok(path)
}

/// Writes an image of one layer and gives the digest of its manifest.
pub fn archive(
    layer: &Path,
    config: &ImageConfig,
    name: &str,
    path: &Path,
) -> Result<String, FileError> {
    let layer_digest = sha256(layer)?;
    let layer_size = layer.metadata().at("read", layer)?.len();
    let config = bytes(&config_json(config, &layer_digest));
    let manifest = bytes(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": format!("sha256:{layer_digest}"),
            "size": layer_size,
        }],
    }));
    let digest = sha256_of(&manifest);
    let blobs = [
        (sha256_of(&config), config),
        (digest.clone(), manifest.clone()),
    ];
    let mut tar = tar::Builder::new(File::create(path).at("write", path)?);
    append(&mut tar, "oci-layout", LAYOUT).at("write", path)?;
    let index = index(&manifest, AMD64.architecture, name);
    append(&mut tar, "index.json", &bytes(&index)).at("write", path)?;
    for (digest, content) in &blobs {
        append(&mut tar, &format!("blobs/sha256/{digest}"), content).at("write", path)?;
    }
    let file = File::open(layer).at("read", layer)?;
    let name = format!("blobs/sha256/{layer_digest}");
    tar.append_data(&mut header(layer_size, 0o644), name, file)
        .at("write", path)?;
    finish(tar, path)?;
    Ok(format!("sha256:{digest}"))
}

/// Packs an OCI layout with one image, as image builders write it, and gives the digest of its
/// manifest. Docker before its version 25 reads `manifest.json` alone.
pub fn pack(layout: &Path, name: &str, path: &Path) -> Result<String, FileError> {
    let blobs = layout.join("blobs/sha256");
    let index_path = layout.join("index.json");
    let text = read(&index_path)?;
    let given: Value = serde_json::from_str(&text)
        .map_err(io::Error::other)
        .at("understand", &index_path)?;
    let digest = given["manifests"][0]["digest"].as_str().unwrap_or_default();
    let digest = digest.trim_start_matches("sha256:").to_owned();
    let manifest_path = blobs.join(&digest);
    let manifest = read(&manifest_path)?;
    let mut tar = tar::Builder::new(File::create(path).at("write", path)?);
    append(&mut tar, "oci-layout", LAYOUT).at("write", path)?;
    let for_docker = docker_manifest(&manifest, name)
        .map_err(io::Error::other)
        .at("understand", &manifest_path)?;
    let config = layout.join(for_docker[0]["Config"].as_str().unwrap_or_default());
    let architecture = architecture(&config)?;
    let index = index(manifest.as_bytes(), &architecture, name);
    append(&mut tar, "index.json", &bytes(&index)).at("write", path)?;
    append(&mut tar, "manifest.json", &bytes(&for_docker)).at("write", path)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&blobs).at("read", &blobs)? {
        names.push(entry.at("read", &blobs)?.file_name());
    }
    names.sort();
    for blob in names {
        let source = blobs.join(&blob);
        let file = File::open(&source).at("read", &source)?;
        let size = file.metadata().at("read", &source)?.len();
        let name = Path::new("blobs/sha256").join(&blob);
        tar.append_data(&mut header(size, 0o644), name, file)
            .at("write", path)?;
    }
    finish(tar, path)?;
    Ok(format!("sha256:{digest}"))
}

/// The architecture of an image, from its configuration.
fn architecture(config: &Path) -> Result<String, FileError> {
    let text = read(config)?;
    let given: Value = serde_json::from_str(&text)
        .map_err(io::Error::other)
        .at("understand", config)?;
    let named = given["architecture"].as_str();
    Ok(named.unwrap_or_default().to_owned())
}

/// Returns the manifest that `docker save` writes of an image beside its blobs.
fn docker_manifest(manifest: &str, name: &str) -> serde_json::Result<Value> {
    let manifest: Value = serde_json::from_str(manifest)?;
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let layers: Vec<_> = manifest["layers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(blob)
        .collect();
    Ok(json!([{"Config": blob(&manifest["config"]), "RepoTags": [name], "Layers": layers}]))
}

/// The index of an archive with one image, under the name by which containerd will know it.
fn index(manifest: &[u8], architecture: &str, name: &str) -> Value {
    let mut descriptor = descriptor("application/vnd.oci.image.manifest.v1+json", manifest);
    descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
    descriptor["annotations"] = json!({"io.containerd.image.name": name});
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor],
    })
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({
        "mediaType": media_type,
        "digest": format!("sha256:{}", sha256_of(content)),
        "size": content.len(),
    })
}

fn config_json(config: &ImageConfig, layer_digest: &str) -> Value {
    let mut run = json!({"Entrypoint": config.entrypoint, "Env": config.env});
    if let Some(user) = &config.user {
        run["User"] = json!(user);
    }
    json!({
        "architecture": AMD64.architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
    })
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Adds a file to an archive.
pub fn append(tar: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(content.len() as u64, 0o644), name, content)
}

fn finish(tar: tar::Builder<File>, path: &Path) -> Result<(), FileError> {
    tar.into_inner()
        .and_then(|mut file| file.flush())
        .at("write", path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_files_give_the_same_bytes_and_every_digest_has_its_blob() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("tool");
        std::fs::write(&source, "content").unwrap();
        let digests = ["one.tar", "two.tar"].map(|name| {
            let layer = layer(dir.path(), &[Entry::program("bin/tool", &source)]).unwrap();
            let config = ImageConfig::entrypoint(&["/bin/tool"]);
            archive(&layer, &config, "a.b/c:d", &dir.path().join(name)).unwrap()
        });
        assert_eq!(digests[0], digests[1]);
        let read = |name| std::fs::read(dir.path().join(name)).unwrap();
        assert_eq!(read("one.tar"), read("two.tar"));

        let mut archive = tar::Archive::new(File::open(dir.path().join("one.tar")).unwrap());
        let entries = archive.entries().unwrap();
        let mut names = BTreeSet::new();
        for entry in entries {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            io::copy(&mut entry, &mut content).unwrap();
            if let Some(digest) = name.strip_prefix("blobs/sha256/") {
                assert_eq!(digest, sha256_of(&content));
            }
            names.insert(name);
        }
        assert_eq!(names.len(), 5);
        let manifest = digests[0].replace("sha256:", "blobs/sha256/");
        assert!(names.contains(&manifest));
    }

    #[test]
    fn docker_finds_the_blobs_of_an_image_by_their_paths() {
        let manifest = r#"{"config": {"digest": "sha256:1"}, "layers": [{"digest": "sha256:2"}]}"#;
        assert_eq!(
            docker_manifest(manifest, "a.b/c:d").unwrap(),
            json!([{
                "Config": "blobs/sha256/1",
                "RepoTags": ["a.b/c:d"],
                "Layers": ["blobs/sha256/2"],
            }])
        );
    }
}
