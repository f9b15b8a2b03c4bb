//! One archive of an image for several platforms, from which each node takes its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use cluster::files::{At, FileError, sha256_of};
use cluster::images::oci::append;
use serde_json::{Value, json};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Joins archives of one image each into one archive named `name`. Docker with its own image store,
/// instead of containerd's, finds only the first image.
pub fn join(archives: &[&Path], name: &str) -> Result<Vec<u8>, FileError> {
    let (mut manifests, mut blobs, mut for_docker) = (Vec::new(), BTreeMap::new(), None);
    for path in archives {
        let mut files = read(path).at("read", path)?;
        let index = files.remove("index.json").unwrap_or_default();
        let index: Value = serde_json::from_slice(&index)
            .map_err(io::Error::other)
            .at("understand", path)?;
        let mut manifest = index["manifests"][0].clone();
        if let Some(manifest) = manifest.as_object_mut() {
            manifest.remove("annotations");
        }
        manifests.push(manifest);
        for_docker = for_docker.or(files.remove("manifest.json"));
        files.retain(|name, _| name.starts_with("blobs/"));
        blobs.extend(files);
    }
    let whole = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    let whole = whole.to_string().into_bytes();
    let digest = sha256_of(&whole);
    let index = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{
            "mediaType": INDEX,
            "digest": format!("sha256:{digest}"),
            "size": whole.len(),
            "annotations": {"io.containerd.image.name": name},
        }],
    });
    let layout = json!({"imageLayoutVersion": "1.0.0"});
    blobs.insert(format!("blobs/sha256/{digest}"), whole);
    let first = [
        ("oci-layout", layout.to_string().into_bytes()),
        ("index.json", index.to_string().into_bytes()),
        ("manifest.json", for_docker.unwrap_or_default()),
    ];
    let mut tar = tar::Builder::new(Vec::new());
    let blobs = blobs.iter().map(|(name, content)| (name.as_str(), content));
    for (name, content) in first.iter().map(|(name, c)| (*name, c)).chain(blobs) {
        append(&mut tar, name, content).at("write", Path::new(name))?;
    }
    tar.into_inner().at("write", Path::new(name))
}

fn read(archive: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    unpacked(File::open(archive)?)
}

/// The files of an archive of an image: an OCI layout.
pub fn unpacked(archive: impl Read) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        files.insert(name, content);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::images::oci::pack;

    /// An archive of an image for this processor, as the harness converts it from the output of an
    /// image builder.
    fn archive(dir: &Path, architecture: &str) -> std::path::PathBuf {
        let layout = dir.join(architecture);
        let blobs = layout.join("blobs/sha256");
        std::fs::create_dir_all(&blobs).unwrap();
        let blob = |content: &[u8]| {
            std::fs::write(blobs.join(sha256_of(content)), content).unwrap();
            json!({"digest": format!("sha256:{}", sha256_of(content)), "size": content.len()})
        };
        let config = blob(json!({"architecture": architecture}).to_string().as_bytes());
        let layer = blob(b"the same for both");
        let manifest = blob(
            json!({"config": config, "layers": [layer]})
                .to_string()
                .as_bytes(),
        );
        let index = json!({"manifests": [manifest]}).to_string();
        std::fs::write(layout.join("index.json"), index).unwrap();
        let archive = dir.join(format!("{architecture}.tar"));
        pack(&layout, "a.b/c:d", &archive).unwrap();
        archive
    }

    #[test]
    fn each_platform_finds_its_own_image_under_one_name() {
        let dir = tempfile::tempdir().unwrap();
        let archives = ["amd64", "arm64"].map(|architecture| archive(dir.path(), architecture));
        let joined = join(&[&archives[0], &archives[1]], "a.b/c:d").unwrap();
        let path = dir.path().join("joined.tar");
        std::fs::write(&path, &joined).unwrap();
        let files = read(&path).unwrap();
        let json = |name: &str| serde_json::from_slice::<Value>(&files[name]).unwrap();
        let at = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
            format!("blobs/{digest}")
        };
        let top = &json("index.json")["manifests"];
        assert_eq!(top.as_array().unwrap().len(), 1);
        assert_eq!(top[0]["annotations"]["io.containerd.image.name"], "a.b/c:d");
        let whole = json(&at(&top[0]));
        for (place, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
            let found = &whole["manifests"][place];
            assert_eq!(found["platform"]["architecture"], architecture);
            assert_eq!(found["platform"]["os"], "linux");
            let config = json(&at(&json(&at(found))["config"]));
            assert_eq!(config["architecture"], architecture);
        }
        // Three files of the form, the index, two manifests, two configurations, and the shared
        // layer.
        assert_eq!(files.len(), 3 + 1 + 2 + 2 + 1);
        for (name, content) in &files {
            if let Some(digest) = name.strip_prefix("blobs/sha256/") {
                assert_eq!(digest, sha256_of(content));
            }
        }
        assert_eq!(
            joined,
            join(&[&archives[0], &archives[1]], "a.b/c:d").unwrap()
        );
    }
}
