//! Builds a release: static programs, guests, the operator's image, and the package that is
//! installed without a network.
//!
//! The same commit and compiler give the same bytes.
//!
//! Entry points:
//! - [`Dist::build`](dist::Dist::build) builds the programs of [`dist`] with cargo, `dist::arm64`
//!   those for arm64, and [`guests::build`] the guests.
//! - [`image::ensure`] makes the operator's image with the repository's Dockerfile.
//! - [`Package::make`](package::Package::make) packs all of it with the chart, the CRDs, the
//!   documents, the SBOM and the licences, and `package::twice` compares the bytes of two builds.
//!   `package::previous` provides the previous release.
//! - [`publish::push`] copies image, chart and guests of a package to a registry, and
//!   [`signing::Cosign`] signs them and the files with the key of the publisher.
//! - [`site::write`] makes the sources of a site of the documents.
//!
//! It uses tools and images of `cluster`, and starts no cluster. It must not know any package of
//! the operator but those for guests and policies, which define a valid guest and its artefact.
#![forbid(unsafe_code)]

pub mod dist;
pub mod guests;
pub mod image;
pub mod package;
pub mod publish;
pub mod signing;
pub mod site;

pub use provision::cargo;
