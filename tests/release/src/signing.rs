//! Signatures and provenance by the key of a publisher, with cosign. Nothing is written to a public
//! log.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use cluster::command::{self, CommandError};

use crate::package::provenance;
use crate::package::sums;

/// Something cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// cosign failed.
    #[error("failed to sign {what} with the key {}; its password is in COSIGN_PASSWORD", key.display())]
    Sign {
        /// What was to be signed.
        what: String,
        /// The key.
        key: PathBuf,
        /// The cause.
        #[source]
        source: Box<CommandError>,
    },
    /// The mode of a bundle cannot be changed.
    #[error("failed to make {} readable for everybody", bundle.display())]
    Readable {
        /// The bundle.
        bundle: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// cosign with the key of a publisher.
#[derive(Clone, Debug)]
pub struct Cosign {
    /// The program.
    pub program: PathBuf,
    /// A private key of `cosign generate-key-pair`, or the URI of one in a key management system.
    pub key: PathBuf,
    /// File with the CAs of the registry's certificate, in PEM, instead of the public ones.
    pub registry_ca: Option<PathBuf>,
    /// Further variables, such as COSIGN_PASSWORD, instead of those of this process.
    pub variables: Vec<(&'static str, OsString)>,
}

impl Cosign {
    /// Signs the checksums beside the archive of a release, and attests the provenance of the
    /// archive. Both become Sigstore bundles beside the files.
    pub fn sign_files(&self, archive: &Path) -> Result<(), SigningError> {
        let folder = archive.parent().unwrap_or(Path::new("."));
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        let bundle = |name: &str| option("--bundle", &folder.join(format!("{name}.sigstore.json")));
        let sums = folder.join(sums::NAME);
        let sign = [bundle(sums::NAME), sums.into_os_string()];
        self.run("sign-blob", &sign, sums::NAME)?;
        let predicate = option("--predicate", &folder.join(provenance::NAME));
        let kind = OsString::from(format!("--type={}", provenance::TYPE));
        let attest = [predicate, kind, bundle(&name), archive.into()];
        self.run("attest-blob", &attest, &name)?;
        for signed in [sums::NAME, &name] {
            make_readable(&folder.join(format!("{signed}.sigstore.json")))?;
        }
        Ok(())
    }

    /// Signs artefacts of registries, as `registry/repository@digest`, and attests the provenance
    /// of each.
    pub fn sign_artefacts(
        &self,
        references: &[String],
        predicate: &Path,
    ) -> Result<(), SigningError> {
        let ca = self.registry_ca.iter();
        let ca: Vec<_> = ca.map(|ca| option("--registry-cacert", ca)).collect();
        let names = references.iter().map(OsString::from);
        let sign: Vec<_> = ca.iter().cloned().chain(names).collect();
        self.run("sign", &sign, &references.join(", "))?;
        for reference in references {
            let kind = OsString::from(format!("--type={}", provenance::TYPE));
            let predicate = option("--predicate", predicate);
            let attest = [predicate, kind, OsString::from(reference)];
            self.run("attest", &[&ca[..], &attest].concat(), reference)?;
        }
        Ok(())
    }

    fn run<S: AsRef<OsStr>>(
        &self,
        task: &str,
        arguments: &[S],
        what: &str,
    ) -> Result<(), SigningError> {
        let mut cosign = Command::new(&self.program);
        cosign
            .arg(task)
            .args(["--yes", "--tlog-upload=false", "--use-signing-config=false"])
            .arg(option("--key", &self.key))
            .args(arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command::run(&mut cosign).map_err(|source| SigningError::Sign {
            what: what.to_owned(),
            key: self.key.clone(),
            source: Box::new(source),
        })
    }
}

/// Gives everybody the right to read a bundle: cosign gives it to the publisher alone, and a server
/// of downloads is another user.
fn make_readable(bundle: &Path) -> Result<(), SigningError> {
    let readable = fs::Permissions::from_mode(0o644);
    fs::set_permissions(bundle, readable).map_err(|source| SigningError::Readable {
        bundle: bundle.to_owned(),
        source,
    })
}

/// An option with a path.
fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push("=");
    option.push(path);
    option
}
