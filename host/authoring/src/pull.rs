//! `policy pull`: pulls a component from an OCI registry.

use std::io;
use std::path::PathBuf;

use clap::Args;
use ipu_api::guest::digest::digest_of;
use ipu_guest_host::Limits;
use ipu_oci::cosign::public_keys;
use ipu_oci::fetch::{FetchError, component, find, signers};
use ipu_oci::reference::Reference;

use super::registry::{RegistryArgs, RegistryCliError, read, wait};
use super::{PolicyCliError, failed_to, unusable};

#[derive(Args, Clone, Debug)]
pub(super) struct PullArgs {
    /// Source, such as registry.example.com/team/my-placement:1.0.
    reference: Reference,
    /// File for the component; by default the last part of the repository, and .wasm.
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Pull it only where it is signed with this cosign public key (PEM); may be given again.
    #[arg(long)]
    key: Vec<PathBuf>,
    #[command(flatten)]
    registry: RegistryArgs,
}

pub(super) fn run(args: &PullArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let mut keys = Vec::new();
    for file in &args.key {
        let read = public_keys(&read(file)?);
        keys.extend(read.map_err(unusable(file, "cannot be used as a key"))?);
    }
    let registry = args.registry.registry(&args.reference)?;
    let failed = |source: FetchError| RegistryCliError::Transfer {
        action: "pull",
        reference: args.reference.to_string(),
        source: Box::new(source),
    };
    let (found, signed, bytes) = wait(async {
        let found = find(&registry, &args.reference).await.map_err(failed)?;
        let signed = if keys.is_empty() {
            "not looked at"
        } else {
            let signers = signers(&registry, &found, &keys).await.map_err(failed)?;
            // There is one at least. Another line would change the output that scripts read.
            signers
                .first()
                .map_or("", |signer| signer.key.fingerprint())
        };
        let bytes = component(&registry, &found, Limits::default().module).await;
        Ok((found, signed, bytes.map_err(failed)?))
    })?;
    let file = args
        .output
        .clone()
        .unwrap_or_else(|| file_name(&args.reference));
    std::fs::write(&file, &bytes).map_err(failed_to("write", &file))?;
    write!(
        out,
        "pulled     {}\ncomponent  {}\nmanifest   {}\nsigned by  {signed}\nwritten    {}\n",
        args.reference,
        digest_of(&bytes),
        found.manifest,
        file.display(),
    )?;
    Ok(())
}

/// Default name of a component.
fn file_name(reference: &Reference) -> PathBuf {
    let name = reference.repository().rsplit('/').next();
    PathBuf::from(format!("{}.wasm", name.unwrap_or("policy")))
}
