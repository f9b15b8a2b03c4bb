//! The digests of everything in a release that goes to a registry.

use std::fmt::Write as _;

use super::VERSION;
use super::archive::Files;
use super::layout::{Root, roots};

/// The file of the digests.
pub const NAME: &str = "digests.txt";

/// The folder of the chart as an artefact.
pub const CHART: &str = "charts/oci/";

/// The folder of the guests as artefacts.
pub const GUESTS: &str = "guests/";

/// An artefact and its repository within a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    /// Such as `charts/ipu-operator`.
    pub repository: String,
    /// Its digest, `sha256:...`.
    pub digest: String,
}

/// The artefacts of a package: the image with this digest, and those of its layouts.
pub fn artefacts(files: &Files, image: &str) -> Vec<Artefact> {
    let image = Artefact {
        repository: "ipu-operator".to_owned(),
        digest: image.to_owned(),
    };
    let chart = |root: Root| Artefact {
        repository: "charts/ipu-operator".to_owned(),
        digest: root.digest,
    };
    let guest = |root: Root| Artefact {
        repository: format!("guests/{}", root.name),
        digest: root.digest,
    };
    let charts = roots(&within(files, CHART)).into_iter().map(chart);
    let guests = roots(&within(files, GUESTS)).into_iter().map(guest);
    std::iter::once(image).chain(charts).chain(guests).collect()
}

/// One line for each artefact, with its digest and its reference below any registry.
pub fn list(artefacts: &[Artefact]) -> Vec<u8> {
    let mut list = String::new();
    for Artefact { repository, digest } in artefacts {
        // Writing to a String cannot fail.
        let _ = writeln!(list, "{digest}  {repository}:{VERSION}");
    }
    list.into_bytes()
}

/// The files of a folder, by their names in it.
pub fn within(files: &Files, folder: &str) -> Files {
    let named = files.iter().filter_map(|(name, content)| {
        let name = name.strip_prefix(folder)?;
        Some((name.to_owned(), content.clone()))
    });
    named.collect()
}
