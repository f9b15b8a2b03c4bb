//! `policy push`: pushes a component to an OCI registry.

use std::io;
use std::path::PathBuf;

use clap::Args;
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{Capabilities, Described, describe};
use ipu_oci::manifest::artefact;
use ipu_oci::push::push;
use ipu_oci::reference::Reference;

use super::registry::{RegistryArgs, RegistryCliError, read, wait};
use super::{PolicyCliError, no_policy};

#[derive(Args, Clone, Debug)]
pub(super) struct PushArgs {
    /// The component, such as my-placement.wasm.
    file: PathBuf,
    /// Target, such as registry.example.com/team/my-placement:1.0.
    reference: Reference,
    #[command(flatten)]
    registry: RegistryArgs,
}

pub(super) fn run(args: &PushArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let described = describe(&args.file).map_err(no_policy(&args.file))?;
    let found = &described.capabilities;
    if !found.is_linkable() {
        return Err(PolicyCliError::NotLinkable(args.file.clone()));
    }
    let component = read(&args.file)?;
    let (imports, exports) = names(found);
    let artefact = artefact(&component, &imports, &exports);
    let manifest = artefact.digest.clone();
    if args
        .reference
        .digest()
        .is_some_and(|wanted| wanted != manifest)
    {
        return Err(RegistryCliError::OtherDigest {
            reference: args.reference.to_string(),
            made: manifest,
        }
        .into());
    }
    let registry = args.registry.registry(&args.reference)?;
    wait(async {
        let pushed = push(&registry, &args.reference, &component, artefact).await;
        pushed.map_err(|source| RegistryCliError::Transfer {
            action: "push",
            reference: args.reference.to_string(),
            source: Box::new(source),
        })
    })?;
    let text = report(args, &described, digest_of(&component).as_str(), &manifest);
    Ok(out.write_all(text.as_bytes())?)
}

fn names(found: &Capabilities) -> (Vec<String>, Vec<String>) {
    let imports = found.imports.iter().map(|import| import.name.clone());
    let exports = found.exports.iter().map(|export| export.name.clone());
    (imports.collect(), exports.collect())
}

/// Formats the pushed component, and the lines for an IPUPolicy.
fn report(args: &PushArgs, described: &Described, component: &str, manifest: &str) -> String {
    let hook = described.capabilities.world.map_or("", Hook::name);
    let (registry, repository) = (args.reference.registry(), args.reference.repository());
    format!(
        "pushed     {reference}\n\
         component  {component}\n\
         manifest   {manifest}\n\
         \n\
         In an IPUPolicy:\n\
         spec:\n\
         \x20 hook: {hook}\n\
         \x20 module:\n\
         \x20   digest: {component}\n\
         \x20   oci:\n\
         \x20     reference: {reference}\n\
         {lines}\
         \n\
         To sign it: cosign sign --key cosign.key {registry}/{repository}@{manifest}\n",
        reference = args.reference,
        lines = args.registry.lines(),
    )
}
