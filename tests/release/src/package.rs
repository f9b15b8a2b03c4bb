//! The package of a release: one archive that installs the operator without a network.
//!
//! Its folders are those of the repository, so the commands of the documents work there too. The
//! same commit and compiler always give the same bytes.

pub mod archive;
pub mod chart;
pub mod crates;
pub mod digests;
pub mod guests;
pub mod krew;
pub mod layout;
pub mod licences;
pub mod manifests;
pub mod previous;
pub mod provenance;
pub mod sbom;
pub mod sums;
pub mod twice;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command::{self, CommandError};
use cluster::files::{At, FileError, make_dir, remove, sha256_of, write};
use cluster::images::Image;
use cluster::platform::Platform;
use cluster::settings::Settings;

use self::archive::Files;
use self::crates::{Crates, CratesError};
use self::guests::GuestsError;
use self::sbom::SbomError;
use self::sums::SumsError;
use crate::dist::{Dist, PLUGIN, Profile, Programs};
use crate::image::joined::{join, unpacked};
use crate::image::{self, compressed_size};

/// The version of all files in the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The maximum size of the image in bytes, as a registry stores it.
const MOST_OF_IMAGE: u64 = 40 << 20;

/// Files and folders that the package contains without changes.
const AS_THEY_ARE: [&str; 12] = [
    "ARCHITECTURE.md",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "charts/ipu-operator/docs",
    "crds",
    "examples",
    "wit",
];

/// Failure to make a package.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The time of the commit is unknown.
    #[error("failed to ask git for the commit's time; without git, set SOURCE_DATE_EPOCH")]
    Commit(#[source] CommandError),
    /// The files of the repository are unknown.
    #[error("failed to ask git which files belong to the repository; is git installed?")]
    Tracked(#[source] CommandError),
    /// The time is not a number.
    #[error("the time {0:?} is no number of seconds since 1970: check SOURCE_DATE_EPOCH")]
    Time(String),
    /// The image has grown.
    #[error(
        "the image for {architecture} has {size} bytes compressed, and {MOST_OF_IMAGE} is the most that it may have"
    )]
    Large {
        /// Its platform.
        architecture: &'static str,
        /// Its bytes.
        size: u64,
    },
    /// `Chart.yaml` cannot be read.
    #[error("failed to understand charts/ipu-operator/Chart.yaml")]
    Chart(#[source] serde_saphyr::Error),
    /// The manifest of krew cannot be written.
    #[error("failed to write the manifest of krew")]
    Krew(#[source] serde_saphyr::ser_error::Error),
    /// The index of the Helm repository cannot be written.
    #[error("failed to write the index of the Helm repository")]
    Index(#[source] serde_saphyr::ser_error::Error),
    /// A guest cannot be made an artefact.
    #[error(transparent)]
    Guests(#[from] GuestsError),
    /// Helm cannot render the chart.
    #[error("failed to render the chart with Helm")]
    Manifests(#[source] CommandError),
    /// The components of the programs are unknown.
    #[error(transparent)]
    Crates(#[from] CratesError),
    /// The SBOM cannot be made.
    #[error(transparent)]
    Sbom(#[from] SbomError),
    /// The unpacked files differ from the packed ones.
    #[error(transparent)]
    Sums(#[from] SumsError),
}

/// A package: a new one in the folder `dist/release`, or one of an earlier release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The archive.
    pub archive: PathBuf,
    /// The version of everything in it.
    version: String,
}

impl Package {
    /// Makes the package from the built files, and from the programs and the image of each
    /// platform, with this Helm. Beside it are the manifest of krew, which contains its checksum,
    /// the manifests for kubectl, the provenance, and the checksums of all four.
    pub fn make(
        settings: &Settings,
        helm: &Path,
        dist: &Dist,
        programs: &[Programs],
        images: &[(Platform, &Image)],
    ) -> Result<Self, PackageError> {
        // Programs of the quick profile have neither the size nor the place of a release.
        let released = images.iter().filter(|_| dist.profile() == Profile::Release);
        for (platform, image) in released {
            small_enough(platform.architecture, compressed_size(image)?)?;
        }
        let time = time(&settings.checkout)?;
        let archive_of_image = image(images)?;
        let plugin = |programs: &Programs| -> Result<_, FileError> {
            let path = programs.plugin();
            Ok((programs.platform, fs::read(&path).at("read", &path)?))
        };
        let manifests = manifests::render(helm, &settings.checkout.join("charts/ipu-operator"))
            .map_err(PackageError::Manifests)?;
        let parts = Parts {
            guests: dist.dir().join("guests"),
            manifests: manifests.clone(),
            plugins: programs.iter().map(plugin).collect::<Result<_, _>>()?,
            image_digest: image_digest(&archive_of_image),
            image: archive_of_image,
            platforms: images.iter().map(|(platform, _)| *platform).collect(),
        };
        let files = files(settings, parts, time)?;
        let folder = dist.dir().join("release");
        make_dir(&folder)?;
        let (name, version) = (name(VERSION), VERSION.to_owned());
        let file = format!("{name}.tar.gz");
        let archive = folder.join(&file);
        let packed = archive::tar_gz(&files, &(name + "/"), time).at("pack", &archive)?;
        let platforms: Vec<_> = programs.iter().map(|one| one.platform).collect();
        let krew = krew::manifest(&files, &platforms, &sha256_of(&packed))?;
        let provenance = provenance::predicate(&settings.checkout, &platforms)?;
        let mut beside = Files::from([
            (file, packed),
            (krew::NAME.to_owned(), krew),
            (manifests::NAME.to_owned(), manifests),
            (provenance::NAME.to_owned(), provenance),
        ]);
        beside.insert(sums::NAME.to_owned(), sums::list(&beside));
        for (name, content) in beside {
            write(&folder.join(name), content)?;
        }
        Ok(Self { archive, version })
    }

    /// Unpacks it into a new folder, and checks every file against its checksum.
    pub fn unpack(&self, into: &Path) -> Result<Unpacked, PackageError> {
        remove(into)?;
        make_dir(into)?;
        archive::unpack(&self.archive, into)?;
        let version = self.version.clone();
        let folder = into.join(name(&version));
        sums::check(&folder)?;
        Ok(Unpacked { folder, version })
    }
}

/// An unpacked package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Its folder.
    pub folder: PathBuf,
    version: String,
}

impl Unpacked {
    /// The archive of the operator's image.
    pub fn image(&self) -> PathBuf {
        self.folder.join(image_file(&self.version))
    }

    /// The plugin of kubectl for a platform.
    pub fn plugin(&self, platform: Platform) -> PathBuf {
        self.folder.join(plugin_file(platform))
    }

    /// The name of that image.
    pub fn image_name(&self) -> String {
        format!("{}:{}", image::REPOSITORY, self.version)
    }

    /// The packed chart.
    pub fn chart(&self) -> PathBuf {
        self.folder.join("charts").join(chart::file(&self.version))
    }
}

/// The name of a package and of the one folder in it.
pub fn name(version: &str) -> String {
    format!("ipu-operator-{version}")
}

fn image_file(version: &str) -> String {
    format!("images/ipu-operator-{version}.tar")
}

/// Returns the path of the plugin of kubectl for a platform: in a folder that can be on a user's
/// PATH.
fn plugin_file(platform: Platform) -> String {
    let architecture = platform.architecture;
    format!("{}linux-{architecture}/{PLUGIN}", archive::PROGRAMS)
}

/// The archive of the image, with one for each platform in it.
fn image(images: &[(Platform, &Image)]) -> Result<Vec<u8>, FileError> {
    if let [(_, image)] = images {
        return fs::read(&image.archive).at("read", &image.archive);
    }
    let archives: Vec<_> = images.iter().map(|(_, image)| &*image.archive).collect();
    join(&archives, image::NAME)
}

/// The digest of the image in an archive, or of the index of its platforms.
fn image_digest(archive: &[u8]) -> String {
    let files = unpacked(archive).unwrap_or_default();
    let mut roots = layout::roots(&files).into_iter();
    roots.next().map(|root| root.digest).unwrap_or_default()
}

/// The parts of a package that are not in the repository.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The folder of the guests.
    pub guests: PathBuf,
    /// The plugin of kubectl for each platform.
    pub plugins: Vec<(Platform, Vec<u8>)>,
    /// The objects for kubectl.
    pub manifests: Vec<u8>,
    /// The archive of the image.
    pub image: Vec<u8>,
    /// The digest of the image, or of the index of its platforms.
    pub image_digest: String,
    /// The platforms of the image.
    pub platforms: Vec<Platform>,
}

/// All files of the package: these parts and the files of the repository. `time` is in seconds
/// since 1970.
pub fn files(settings: &Settings, parts: Parts, time: u64) -> Result<Files, PackageError> {
    let checkout = &*settings.checkout;
    let (tracked, mut files) = (tracked(checkout)?, Files::new());
    for name in AS_THEY_ARE {
        archive::add(&mut files, &checkout.join(name), name)?;
    }
    files.retain(|name, _| tracked.has(name));
    let mut chart = chart::files(checkout)?;
    chart.retain(|name, _| tracked.has(&format!("charts/ipu-operator/{name}")));
    let packed = archive::tar_gz(&chart, "ipu-operator/", time);
    let packed = packed.at("pack", &checkout.join("charts/ipu-operator"))?;
    let index = chart::index(&chart, &packed, time)?;
    for (name, content) in chart::layout(&chart, &packed)? {
        files.insert(format!("{}{name}", digests::CHART), content);
    }
    for (name, content) in chart {
        files.insert(format!("charts/ipu-operator/{name}"), content);
    }
    files.insert(format!("charts/{}", chart::file(VERSION)), packed);
    files.insert("charts/index.yaml".to_owned(), index);
    files.insert(image_file(VERSION), parts.image);
    files.insert(manifests::NAME.to_owned(), parts.manifests);
    for (platform, program) in parts.plugins {
        files.insert(plugin_file(platform), program);
    }
    for (name, content) in guests::layout(&parts.guests)? {
        files.insert(format!("{}{name}", digests::GUESTS), content);
    }
    let artefacts = digests::artefacts(&files, &parts.image_digest);
    files.insert(digests::NAME.to_owned(), digests::list(&artefacts));
    let crates = Crates::of(settings, &parts.platforms)?;
    files.insert("sbom.cdx.json".to_owned(), sbom::render(&crates)?);
    files.insert(licences::NAME.to_owned(), licences::render(&crates)?);
    let sums = sums::list(&files);
    files.insert(sums::NAME.to_owned(), sums);
    Ok(files)
}

/// The files of the repository. `None`: the checkout is a copy, not a clone.
struct Tracked(Option<BTreeSet<String>>);

impl Tracked {
    /// Other files in the folders of a clone are not shipped.
    fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(name))
    }
}

fn tracked(checkout: &Path) -> Result<Tracked, PackageError> {
    if !checkout.join(".git").exists() {
        return Ok(Tracked(None));
    }
    let mut git = Command::new("git");
    git.args(["ls-files", "-z"]).current_dir(checkout);
    let listed = command::output(&mut git).map_err(PackageError::Tracked)?;
    let names = listed.split('\0').map(str::to_owned).collect();
    Ok(Tracked(Some(names)))
}

fn small_enough(architecture: &'static str, size: u64) -> Result<(), PackageError> {
    if size > MOST_OF_IMAGE {
        return Err(PackageError::Large { architecture, size });
    }
    Ok(())
}

/// The time of all files: that of the commit, unless SOURCE_DATE_EPOCH sets another.
fn time(checkout: &Path) -> Result<u64, PackageError> {
    let seconds_text = if let Ok(asked) = env::var("SOURCE_DATE_EPOCH") {
        asked
    } else {
        let mut git = Command::new("git");
        git.args(["log", "-1", "--format=%ct"])
            .current_dir(checkout);
        command::output(&mut git).map_err(PackageError::Commit)?
    };
    let seconds = seconds_text.trim().parse();
    seconds.map_err(|_| PackageError::Time(seconds_text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_more_than_forty_mebibytes_is_refused() {
        small_enough("arm64", 40 * 1024 * 1024).unwrap();
        let error = small_enough("arm64", 40 * 1024 * 1024 + 1);
        let error = error.unwrap_err().to_string();
        let expected = "the image for arm64 has 41943041 bytes";
        assert!(error.starts_with(expected), "{error}");
    }
}
