//! Reads the files of certificates and credentials for V-IPU controllers, and follows their
//! changes.
//!
//! Guarantees: an invalid file never causes a call in plain text or without credentials. Invalid
//! files do not replace valid ones that were read before. Without valid files, no controller is
//! called.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipu_text::explain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Auth, AuthError, AuthOptions, AuthState, Content, Material};

/// Period of the reads. The kubelet updates the files of a Secret more slowly.
const PERIOD: Duration = Duration::from_secs(2);

/// The files of one process.
#[derive(Debug)]
pub struct AuthFiles {
    options: AuthOptions,
    state: watch::Sender<AuthState>,
    /// Result of the last read: the content, or the text of the error.
    last_read: Option<Result<Material, String>>,
}

impl AuthFiles {
    /// Reads the files of the options once. Unusable files are logged; only an option that can
    /// never be valid is an error.
    pub async fn open(options: AuthOptions) -> Result<Self, AuthError> {
        super::check(&options)?;
        if options.vipu_credentials_dir.is_some() && options.vipu_tls_dir.is_none() {
            tracing::warn!(
                "V-IPU credentials are sent in plain text, since no folder with TLS certificates is named"
            );
        }
        let mut files = AuthFiles {
            options,
            state: watch::Sender::new(Ok(Arc::default())),
            last_read: None,
        };
        files.reload().await;
        Ok(files)
    }

    /// The current authentication and its changes.
    pub fn subscribe(&self) -> watch::Receiver<AuthState> {
        self.state.subscribe()
    }

    /// Follows the files until `stop` is cancelled.
    pub async fn follow(mut self, stop: CancellationToken) {
        if self.options.vipu_tls_dir.is_none() && self.options.vipu_credentials_dir.is_none() {
            return;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PERIOD) => self.reload().await,
            }
        }
    }

    /// Reads the files, and validates them if they have changed.
    pub async fn reload(&mut self) {
        let read = read(&self.options).await;
        let latest = read
            .as_ref()
            .map(Clone::clone)
            .map_err(|error| explain(error));
        if self.last_read.as_ref() == Some(&latest) {
            return;
        }
        let is_first = self.last_read.replace(latest).is_none();
        match read.and_then(|material| Auth::new(&material, &self.options)) {
            Ok(auth) => {
                tracing::info!(?auth, "calls to V-IPU controllers use these settings now");
                drop(self.state.send_replace(Ok(Arc::new(auth))));
            }
            Err(error) if is_first || self.state.borrow().is_err() => {
                tracing::error!(
                    error = explain(&error),
                    "no V-IPU controller is called until this is fixed"
                );
                drop(self.state.send_replace(Err(Arc::new(error))));
            }
            Err(error) => tracing::warn!(
                error = explain(&error),
                "continuing with the last valid certificates and credentials for V-IPU controllers"
            ),
        }
    }
}

/// Reads every required file, and the optional files that exist.
async fn read(options: &AuthOptions) -> Result<Material, AuthError> {
    let mut material = Material::default();
    if let Some(folder) = &options.vipu_tls_dir {
        material.ca =
            Some(content(folder, "ca.crt").await?.ok_or_else(|| {
                missing(folder, "ca.crt", "by which V-IPU controllers are known")
            })?);
        material.certificate = content(folder, "tls.crt").await?;
        material.key = content(folder, "tls.key").await?;
        match (&material.certificate, &material.key) {
            (Some(_), None) => {
                return Err(missing(
                    folder,
                    "tls.key",
                    "beside the tls.crt that is there",
                ));
            }
            (None, Some(_)) => {
                return Err(missing(
                    folder,
                    "tls.crt",
                    "beside the tls.key that is there",
                ));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    if let Some(folder) = &options.vipu_credentials_dir {
        material.user_id = content(folder, "user-id").await?;
        material.api_key = content(folder, "api-key").await?;
        if material.user_id.is_none() && material.api_key.is_none() {
            return Err(missing(folder, "api-key", "or user-id, or both"));
        }
    }
    Ok(material)
}

/// A file of a folder, if it exists.
async fn content(folder: &Path, name: &str) -> Result<Option<Content>, AuthError> {
    let file = folder.join(name);
    match tokio::fs::read(&file).await {
        Ok(bytes) => Ok(Some(Content { file, bytes })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(AuthError::Read(file, source)),
    }
}

fn missing(folder: &Path, name: &str, why: &'static str) -> AuthError {
    let file: PathBuf = folder.join(name);
    AuthError::Missing { file, why }
}
