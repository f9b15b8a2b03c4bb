//! Copies the image, the chart and the guests of an unpacked release to a registry. The digests
//! stay the same.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster::files::{At, FileError};
use ipu_oci::credentials::{Credentials, CredentialsError};
use ipu_oci::manifest::{INDEX, MANIFEST};
use ipu_oci::reference::{Reference, ReferenceError};
use ipu_oci::registry::{Access, Registry, RegistryError};
use serde_json::Value;

use crate::image::joined::unpacked;
use crate::package::archive::{self, Files};
use crate::package::digests::{self, Artefact};
use crate::package::{VERSION, layout};

/// Time limit between two parts of an answer. A registry may need it to store a large layer.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Failure to publish a release.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The name of the registry cannot be a part of a reference.
    #[error("failed to make a reference of {0:?}; write REGISTRY=<host>/<path>")]
    Reference(String, #[source] ReferenceError),
    /// Docker's configuration cannot be used.
    #[error("failed to read the credentials in {}", .0.display())]
    Credentials(PathBuf, #[source] CredentialsError),
    /// The registry refuses an artefact.
    #[error("failed to push {0}")]
    Registry(String, #[source] Box<RegistryError>),
    /// A layout lacks a blob or has an unreadable manifest.
    #[error("the layout has no blob {0}, or cannot read it: unpack the release again")]
    Layout(String),
}

/// Pushes everything in the folder of an unpacked release to a registry, with the version as the
/// tag. The registry has one of these CAs, by default a public one. Returns the references with
/// digests, as cosign signs them.
pub async fn push(
    folder: &Path,
    registry: &str,
    ca_pem: Option<&[u8]>,
) -> Result<Vec<String>, PublishError> {
    let image = folder.join(format!("images/ipu-operator-{VERSION}.tar"));
    let image = unpacked(File::open(&image).at("read", &image)?).at("read", &image)?;
    let mut files = Files::new();
    for layout in [digests::CHART, digests::GUESTS] {
        archive::add(
            &mut files,
            &folder.join(layout),
            layout.trim_end_matches('/'),
        )?;
    }
    let of_image = layout::roots(&image);
    let of_image = of_image.first().map(|root| root.digest.as_str());
    let artefacts = digests::artefacts(&files, of_image.unwrap_or_default());
    files = [digests::CHART, digests::GUESTS]
        .into_iter()
        .flat_map(|layout| digests::within(&files, layout))
        .chain(image)
        .collect();
    let mut pushed = Vec::new();
    for artefact in artefacts {
        push_artefact(&files, registry, ca_pem, &artefact).await?;
        pushed.push(format!(
            "{registry}/{}@{}",
            artefact.repository, artefact.digest
        ));
    }
    Ok(pushed)
}

/// Pushes one artefact, its blobs first.
async fn push_artefact(
    files: &Files,
    registry: &str,
    ca_pem: Option<&[u8]>,
    artefact: &Artefact,
) -> Result<(), PublishError> {
    let name = format!("{registry}/{}:{VERSION}", artefact.repository);
    let reference: Reference = name
        .parse()
        .map_err(|source| PublishError::Reference(name.clone(), source))?;
    let failed = |source| PublishError::Registry(name.clone(), Box::new(source));
    let access = Access {
        credentials: credentials(&reference)?,
        ca_pem: ca_pem.map(<[u8]>::to_vec),
        timeout: TIMEOUT,
        ..Access::default()
    };
    let client = Registry::new(&reference, access).map_err(failed)?;
    for manifest in manifests(files, &artefact.digest)? {
        for blob in manifest.blobs {
            let content = content(files, &blob)?.to_owned();
            client.put_blob(content.into()).await.map_err(failed)?;
        }
        let is_root = manifest.digest == artefact.digest;
        let version = if is_root { VERSION } else { &manifest.digest };
        let content = content(files, &manifest.digest)?.to_owned();
        let put = client.put_manifest(version, manifest.kind, content.into());
        put.await.map_err(failed)?;
    }
    Ok(())
}

/// A manifest, and the blobs that it names.
struct Manifest {
    digest: String,
    kind: &'static str,
    blobs: Vec<String>,
}

/// The manifests below a digest, each before the index that names it.
fn manifests(files: &Files, digest: &str) -> Result<Vec<Manifest>, PublishError> {
    let manifest: Value = serde_json::from_slice(content(files, digest)?)
        .map_err(|_| PublishError::Layout(digest.to_owned()))?;
    let of = |value: &Value| value["digest"].as_str().map(str::to_owned);
    let all_of = |name: &str| {
        let named = manifest[name].as_array().into_iter().flatten();
        named.filter_map(of).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    for platform in all_of("manifests") {
        all.extend(manifests(files, &platform)?);
    }
    let is_index = manifest["manifests"].is_array();
    all.push(Manifest {
        digest: digest.to_owned(),
        kind: if is_index { INDEX } else { MANIFEST },
        blobs: of(&manifest["config"])
            .into_iter()
            .chain(all_of("layers"))
            .collect(),
    });
    Ok(all)
}

fn content<'a>(files: &'a Files, digest: &str) -> Result<&'a [u8], PublishError> {
    let found = files.get(&layout::path(digest)).map(Vec::as_slice);
    found.ok_or_else(|| PublishError::Layout(digest.to_owned()))
}

/// The credentials that `docker login` has stored, as Helm and cosign use them.
fn credentials(reference: &Reference) -> Result<Option<Credentials>, PublishError> {
    let folder = env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| env::home_dir().map(|home| home.join(".docker")));
    let Some(file) = folder.map(|folder| folder.join("config.json")) else {
        return Ok(None);
    };
    let Ok(config) = fs::read(&file) else {
        return Ok(None);
    };
    Credentials::find_any(&config, reference)
        .map_err(|source| PublishError::Credentials(file, source))
}
