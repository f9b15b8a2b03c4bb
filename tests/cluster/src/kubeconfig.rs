//! Kubeconfigs: who speaks to which API server with which certificate.

use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::{Value, json};

use crate::{
    files::{FileError, write_json},
    pki::{Identity, cluster_ca},
};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig could not be used.
    #[error("failed to read the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: KubeconfigError,
    },
    /// The client could not be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// Writes a kubeconfig. It names certificate and key by path.
pub fn write(path: &Path, server: &str, pki: &Path, identity: &Identity) -> Result<(), FileError> {
    write_json(path, &content(server, &cluster_ca(pki), identity))
}

/// A client with the rights that the kubeconfig gives. A client belongs to the runtime in which it
/// is made: every test makes its own.
pub async fn client(path: &Path) -> Result<Client, ClientError> {
    client_of(config(path).await?)
}

/// The same, with the rights of another user, whom this one may speak for.
pub async fn client_as(path: &Path, user: &str) -> Result<Client, ClientError> {
    let mut config = config(path).await?;
    config.auth_info.impersonate = Some(user.to_owned());
    client_of(config)
}

async fn config(path: &Path) -> Result<Config, ClientError> {
    let failed = |source| ClientError::Kubeconfig {
        path: path.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(failed)
}

fn client_of(config: Config) -> Result<Client, ClientError> {
    // Whoever came first has chosen the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::try_from(config).map_err(|source| ClientError::Client(Box::new(source)))
}

fn content(server: &str, ca: &Path, identity: &Identity) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "lab",
            "cluster": {"server": server, "certificate-authority": ca},
        }],
        "users": [{
            "name": "lab",
            "user": {"client-certificate": identity.certificate, "client-key": identity.key},
        }],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    })
}
