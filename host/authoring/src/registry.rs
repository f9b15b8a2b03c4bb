//! The options by which `policy push` and `policy pull` reach a registry.

use std::error::Error;
use std::future::Future;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ipu_oci::credentials::{Credentials, CredentialsError};
use ipu_oci::reference::Reference;
use ipu_oci::registry::{Access, Registry, RegistryError};

use super::{PolicyCliError, failed_to};

/// Longest time that pushing or pulling may take.
const LONGEST: Duration = Duration::from_mins(10);

/// Longest password, in bytes; tokens of clouds have a few thousand.
const PASSWORD: u64 = 64 << 10;

#[derive(Args, Clone, Debug)]
pub(super) struct RegistryArgs {
    /// User at the registry; without it, what `docker login` or `podman login` keeps in
    /// config.json.
    #[arg(long, requires = "password_stdin")]
    username: Option<String>,
    /// Read the user's password from the standard input.
    #[arg(long, requires = "username")]
    password_stdin: bool,
    /// Folder with Docker's config.json [default: ~/.docker].
    #[arg(long, env = "DOCKER_CONFIG")]
    docker_config: Option<PathBuf>,
    /// Certificates (PEM) of the CAs for the registry, instead of the public ones.
    #[arg(long)]
    ca_file: Option<PathBuf>,
    /// Connect to the registry without TLS.
    #[arg(long, conflicts_with = "ca_file")]
    plain_http: bool,
}

/// Failure of an operation on a registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryCliError {
    /// The password is not to be had.
    #[error("failed to read the password from the standard input")]
    Password(#[source] io::Error),
    /// The configuration of Docker cannot be used.
    #[error("{0} cannot be used; --username and --password-stdin take its place")]
    Config(PathBuf, #[source] CredentialsError),
    /// The runtime for network connections cannot be started.
    #[error("failed to start the asynchronous runtime")]
    Runtime(#[source] io::Error),
    /// It took too long.
    #[error("the operation in the registry did not end within {} s; try again", LONGEST.as_secs())]
    Late,
    /// The manifest of the reference does not contain this component.
    #[error(
        "{reference} names another digest than the one that the component has in a registry, {made}; \
         leave the digest out, or push what it names"
    )]
    OtherDigest {
        /// The target.
        reference: String,
        /// The digest of the manifest that would be pushed.
        made: String,
    },
    /// The registry does not take it, or does not give it.
    #[error("failed to {action} {reference}")]
    Transfer {
        /// `push` or `pull`.
        action: &'static str,
        /// The target or the source.
        reference: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The registry cannot be spoken to.
    #[error(transparent)]
    Registry(Box<RegistryError>),
}

impl RegistryArgs {
    /// The registry of a reference, with the connection options.
    pub(super) fn registry(&self, reference: &Reference) -> Result<Registry, PolicyCliError> {
        let ca_pem = self.ca_file.as_deref().map(read).transpose()?;
        let access = Access {
            credentials: self.credentials(reference)?,
            ca_pem,
            plain_http: self.plain_http,
            ..Access::default()
        };
        let registry = Registry::new(reference, access);
        let failed = |error| RegistryCliError::Registry(Box::new(error));
        Ok(registry.map_err(failed)?)
    }

    /// Whether `spec.module.oci` must also contain the connection options.
    pub(super) fn lines(&self) -> String {
        let mut lines = String::new();
        if self.plain_http {
            lines.push_str("    plainHttp: true\n");
        }
        if self.ca_file.is_some() {
            lines.push_str(
                "    certificateAuthorities:\n      configMap: {name: registry-ca, key: ca.crt}\n",
            );
        }
        lines
    }

    fn credentials(&self, reference: &Reference) -> Result<Option<Credentials>, RegistryCliError> {
        if let Some(user) = &self.username {
            let password = password(io::stdin().lock()).map_err(RegistryCliError::Password)?;
            return Ok(Some(Credentials {
                user: user.clone(),
                password,
            }));
        }
        let home = || std::env::home_dir().map(|home| home.join(".docker"));
        let Some(folder) = self.docker_config.clone().or_else(home) else {
            return Ok(None);
        };
        let file = folder.join("config.json");
        // A user who has never logged in has no such file.
        let Ok(config) = std::fs::read(&file) else {
            return Ok(None);
        };
        let found = Credentials::find_any(&config, reference);
        found.map_err(|source| RegistryCliError::Config(file, source))
    }
}

/// Does what needs the network, for which there is only so much time.
pub(super) fn wait<T>(
    work: impl Future<Output = Result<T, RegistryCliError>>,
) -> Result<T, RegistryCliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RegistryCliError::Runtime)?;
    let done = runtime.block_on(async { tokio::time::timeout(LONGEST, work).await });
    done.unwrap_or(Err(RegistryCliError::Late))
}

/// Reads a file.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, PolicyCliError> {
    std::fs::read(file).map_err(failed_to("read", file))
}

/// A password without the end of its line.
fn password(input: impl Read) -> io::Result<String> {
    let mut password = String::new();
    input.take(PASSWORD).read_to_string(&mut password)?;
    Ok(password.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::password;

    #[test]
    fn a_password_ends_with_its_line() {
        for text in ["a b", "a b\n", "a b\r\n"] {
            assert_eq!(password(text.as_bytes()).unwrap(), "a b");
        }
    }
}
