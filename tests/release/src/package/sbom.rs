//! The software bill of materials (SBOM) of a release, as CycloneDX 1.5 defines it.

use cyclonedx_bom::errors::JsonWriteError;
use cyclonedx_bom::external_models::spdx::{SpdxExpression, SpdxExpressionError};
use cyclonedx_bom::external_models::uri::{Purl, UriError};
use cyclonedx_bom::models::bom::Bom;
use cyclonedx_bom::models::component::{Classification, Component, Components};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata;

use super::VERSION;
use super::crates::{Crate, Crates};

/// Licence of the C library.
pub const LIBC_LICENCE: &str = "LGPL-2.1-or-later";
/// Licence of Rust's standard library.
pub const RUST_LICENCE: &str = "MIT OR Apache-2.0";

/// Failure to make an SBOM.
#[derive(Debug, thiserror::Error)]
pub enum SbomError {
    /// A name cannot be made into a URL of a package.
    #[error("failed to name the package {0}")]
    Name(String, #[source] UriError),
    /// A licence is not an SPDX expression.
    #[error("failed to understand the licence of {0}")]
    Licence(String, #[source] SpdxExpressionError),
    /// It could not be written.
    #[error("failed to write the SBOM of the release")]
    Write(#[source] JsonWriteError),
}

/// The SBOM. It has neither serial number nor time, which would differ in each build.
pub fn render(crates: &Crates) -> Result<Vec<u8>, SbomError> {
    let mut components = crates
        .crates
        .iter()
        .map(of_crate)
        .collect::<Result<Vec<_>, _>>()?;
    components.push(component(
        "generic",
        "rust-std",
        &crates.rust,
        Some(RUST_LICENCE),
    )?);
    for version in &crates.libcs {
        components.push(component("generic", "glibc", version, Some(LIBC_LICENCE))?);
    }
    let reference = |component: &Component| component.bom_ref.clone().unwrap_or_default();
    let references: Vec<_> = components.iter().map(reference).collect();
    let release = component(
        "generic",
        "ipu-operator-release",
        VERSION,
        Some("Apache-2.0"),
    )?;
    let dependencies = dependencies(crates, reference(&release), &references);
    let bom = Bom {
        serial_number: None,
        metadata: Some(Metadata {
            component: Some(release),
            ..Metadata::default()
        }),
        components: Some(Components(components)),
        dependencies: Some(Dependencies(dependencies)),
        ..Bom::default()
    };
    let mut json = Vec::new();
    bom.output_as_json_v1_5(&mut json)
        .map_err(SbomError::Write)?;
    Ok(json)
}

/// The components of the release, and the dependencies of each crate. `references` has those of the
/// crates first, then those of components that are no crates.
fn dependencies(crates: &Crates, release: String, references: &[String]) -> Vec<Dependency> {
    let all = crates.crates.iter().zip(references);
    let ours = all.clone().filter(|(of, _)| of.is_ours());
    let mut parts: Vec<_> = ours.map(|(_, reference)| reference.clone()).collect();
    parts.extend_from_slice(&references[crates.crates.len()..]);
    let whole = Dependency {
        dependency_ref: release,
        dependencies: parts,
    };
    let each = all.map(|(of, reference)| {
        let needs = of.needs.iter().map(|&place| references[place].clone());
        Dependency {
            dependency_ref: reference.clone(),
            dependencies: needs.collect(),
        }
    });
    std::iter::once(whole).chain(each).collect()
}

fn of_crate(of: &Crate) -> Result<Component, SbomError> {
    let package = &of.package;
    let licence = package.license.as_deref();
    component(
        "cargo",
        &package.name,
        &package.version.to_string(),
        licence,
    )
}

fn component(
    kind: &str,
    name: &str,
    version: &str,
    licence: Option<&str>,
) -> Result<Component, SbomError> {
    let purl = Purl::new(kind, name, version);
    let purl = purl.map_err(|source| SbomError::Name(name.to_owned(), source))?;
    let mut component = Component::new(
        Classification::Library,
        name,
        version,
        Some(purl.to_string()),
    );
    component.purl = Some(purl);
    if let Some(licence) = licence {
        let expression = SpdxExpression::parse_lax(licence.to_owned());
        let expression =
            expression.map_err(|source| SbomError::Licence(name.to_owned(), source))?;
        component.licenses = Some(Licenses(vec![LicenseChoice::Expression(expression)]));
    }
    Ok(component)
}
