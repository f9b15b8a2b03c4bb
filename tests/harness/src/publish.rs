//! The publisher's part of a release: signatures with a key, and the copies in a registry.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use release::package::{Package, provenance};
use release::publish;
use release::signing::Cosign;

/// Options of a publisher.
#[derive(Args, Debug)]
pub(crate) struct Publisher {
    /// Private key of cosign, with which the release is signed. Its password is in COSIGN_PASSWORD.
    #[arg(long)]
    key: Option<PathBuf>,
    /// Where image, chart and guests are pushed, such as registry.example.com/team. With a key they
    /// are signed there.
    #[arg(long)]
    registry: Option<String>,
    /// File with the CAs of the registry's certificate, in PEM, instead of the public ones.
    #[arg(long, requires = "registry")]
    registry_ca: Option<PathBuf>,
}

/// A signed provenance names a commit, so nothing else may be in the release.
pub(crate) fn refuse_changes(settings: &Settings, publisher: &Publisher) -> Result<()> {
    if publisher.key.is_some() && release::package::twice::has_changes(settings)? {
        bail!(
            "there are uncommitted changes, which the provenance would not name: commit or stash them"
        );
    }
    Ok(())
}

/// Signs the files of the package, pushes what it contains to the registry, and signs that too.
pub(crate) fn publish(
    settings: &Settings,
    progress: &Progress,
    package: &Package,
    publisher: &Publisher,
) -> Result<()> {
    let cosign = publisher.key.as_ref().map(|key| -> Result<_> {
        let tools = Tools::fetch_some(settings, progress, &["cosign"])?;
        let (program, key) = (tools.program("cosign").to_owned(), key.clone());
        Ok(Cosign {
            program,
            key,
            registry_ca: publisher.registry_ca.clone(),
            variables: Vec::new(),
        })
    });
    let cosign = cosign.transpose()?;
    if let Some(cosign) = &cosign {
        progress.run("signed the files", || cosign.sign_files(&package.archive))?;
    }
    let Some(registry) = &publisher.registry else {
        return Ok(());
    };
    let ca_pem = publisher.registry_ca.as_ref().map(|file| {
        fs::read(file).with_context(|| format!("failed to read REGISTRY_CA={}", file.display()))
    });
    let ca_pem = ca_pem.transpose()?;
    let folder = tempfile::tempdir()?;
    let unpacked = package.unpack(folder.path())?;
    let pushed = progress.run("pushed image, chart and guests", || {
        super::runtime()?.block_on(async {
            let pushed = publish::push(&unpacked.folder, registry, ca_pem.as_deref()).await;
            pushed.map_err(anyhow::Error::from)
        })
    })?;
    if let Some(cosign) = &cosign {
        let predicate = package.archive.with_file_name(provenance::NAME);
        progress.run("signed image, chart and guests", || {
            cosign.sign_artefacts(&pushed, &predicate)
        })?;
    }
    for reference in pushed {
        println!("{reference}");
    }
    Ok(())
}
