//! Container images, made without a registry: each is an OCI archive in the cache.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub mod managers;
pub mod metrics_server;
pub mod oci;
pub mod openmpi;

use self::oci::{Entry, ImageConfig};
use crate::debian::DebianError;
use crate::{
    command::{self, CommandError},
    files::{At, FileError, read, sha256_of, write},
    kubernetes::Kubernetes,
    progress::Progress,
    settings::Settings,
    tools::{Tools, ToolsError, stored},
};

/// Image of every Pod's first container.
pub const PAUSE_IMAGE: &str = "ipu-operator.local/pause:1";
/// Image of the name server.
pub const COREDNS_IMAGE: &str = "ipu-operator.local/coredns:1";

/// Failure to make an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The packages of an image are not available.
    #[error(transparent)]
    Debian(DebianError),
    /// A tool is missing.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A command failed.
    #[error("failed to {action}")]
    Command {
        /// The action.
        action: &'static str,
        /// The cause.
        #[source]
        source: CommandError,
    },
}

/// An image in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its name in the spec of a Pod.
    pub name: String,
    /// The archive.
    pub archive: PathBuf,
    /// Digest of its manifest, `sha256:…`.
    pub digest: String,
}

/// The images that every cluster needs.
pub fn system(
    settings: &Settings,
    tools: &Tools,
    progress: &Progress,
) -> Result<Vec<Image>, ImageError> {
    Ok(vec![
        pause(settings, progress)?,
        coredns(settings, tools, progress)?,
    ])
}

/// The image of a Pod's first container, from the source in Kubernetes. All versions use that of
/// the default version, so that it is not rebuilt for each of them.
fn pause(settings: &Settings, progress: &Progress) -> Result<Image, ImageError> {
    let settings = &Settings {
        kubernetes: Kubernetes::default(),
        ..settings.clone()
    };
    let inputs = Tools::version(settings, "kubernetes")?;
    make(settings, progress, PAUSE_IMAGE, &inputs, |dir| {
        let source = Tools::source(settings, "kubernetes")?.join("build/pause/linux/pause.c");
        let binary = dir.join("pause");
        let mut cc = Command::new("cc");
        cc.args(["-Os", "-Wall", "-static", "-DVERSION=harness", "-o"])
            .arg(&binary)
            .arg(source);
        command::run(&mut cc).map_err(|source| ImageError::Command {
            action: "compile the pause program",
            source,
        })?;
        let layer = oci::layer(dir, &[Entry::program("pause", &binary)])?;
        fs::remove_file(&binary).at("remove", &binary)?;
        Ok((layer, ImageConfig::entrypoint(&["/pause"])))
    })
}

fn coredns(settings: &Settings, tools: &Tools, progress: &Progress) -> Result<Image, ImageError> {
    let binary = tools.program("coredns");
    let inputs = crate::files::sha256(binary)?;
    make(settings, progress, COREDNS_IMAGE, &inputs, |dir| {
        let layer = oci::layer(dir, &[Entry::program("coredns", binary)])?;
        Ok((layer, ImageConfig::entrypoint(&["/coredns"])))
    })
}

/// Makes an image in the cache, unless the cache has it. `inputs` determine its content. `build`
/// returns its one layer.
pub fn make(
    settings: &Settings,
    progress: &Progress,
    name: &str,
    inputs: &str,
    build: impl FnOnce(&Path) -> Result<(PathBuf, ImageConfig), ImageError>,
) -> Result<Image, ImageError> {
    let dir = folder(settings, name);
    let inputs = sha256_of(inputs);
    if !stored::is_intact(&dir, &inputs) {
        progress.run(format!("made the image {name}"), || {
            stored::make(&dir, &inputs, |partial| {
                let (layer, config) = build(partial)?;
                let archive = partial.join("image.tar");
                let digest = oci::archive(&layer, &config, name, &archive)?;
                fs::remove_file(&layer).at("remove", &layer)?;
                Ok::<_, ImageError>(write(&partial.join("digest"), digest)?)
            })
        })?;
    }
    Ok(Image {
        name: name.to_owned(),
        archive: dir.join("image.tar"),
        digest: read(&dir.join("digest"))?,
    })
}

/// The folder of an image in the cache.
pub fn folder(settings: &Settings, name: &str) -> PathBuf {
    settings
        .cache
        .join("images")
        .join(name.replace(['/', ':'], "_"))
}
