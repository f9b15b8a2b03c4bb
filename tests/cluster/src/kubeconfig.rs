//! Kubeconfigs: the API server, and the certificate of its client.

use std::{
    io,
    path::{Path, PathBuf},
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::{Value, json};

use crate::{
    files::{At, FileError, read, write_json},
    pki::{Identity, cluster_ca},
};

/// Failure to create a client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig could not be used.
    #[error("failed to read the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The problem.
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

/// Writes a copy of a kubeconfig that impersonates another user. `group`: the group whose rights it
/// has. The API server adds the groups of a ServiceAccount if none is given.
pub fn write_as(
    from: &Path,
    path: &Path,
    user: &str,
    group: Option<&str>,
) -> Result<(), FileError> {
    let mut content = parse(from)?;
    let impersonating = &mut content["users"][0]["user"];
    impersonating["as"] = json!(user);
    if let Some(group) = group {
        impersonating["as-groups"] = json!([group]);
    }
    write_json(path, &content)
}

/// Writes a copy of a kubeconfig whose client has this token, and the rights of its account.
pub fn write_with_token(from: &Path, path: &Path, token: &str) -> Result<(), FileError> {
    let mut content = parse(from)?;
    content["users"][0]["user"] = json!({"token": token});
    write_json(path, &content)
}

/// Writes a copy of a kubeconfig whose API server is at this address.
pub fn write_at(from: &Path, path: &Path, server: &str) -> Result<(), FileError> {
    let mut content = parse(from)?;
    content["clusters"][0]["cluster"]["server"] = json!(server);
    write_json(path, &content)
}

/// Writes a copy of a kubeconfig whose default namespace is this one.
pub fn write_in(from: &Path, path: &Path, namespace: &str) -> Result<(), FileError> {
    let mut content = parse(from)?;
    content["contexts"][0]["context"]["namespace"] = json!(namespace);
    write_json(path, &content)
}

fn parse(path: &Path) -> Result<Value, FileError> {
    let content: Result<Value, _> = serde_json::from_str(&read(path)?);
    content.map_err(io::Error::other).at("parse", path)
}

/// Returns a client with the rights of the kubeconfig. A client belongs to its runtime, so every
/// test makes its own.
pub async fn client(path: &Path) -> Result<Client, ClientError> {
    client_of(config(path).await?)
}

/// Returns a client that impersonates another user.
pub async fn client_as(path: &Path, user: &str) -> Result<Client, ClientError> {
    client_in(path, user, None).await
}

/// Returns a client that impersonates another user in this group, whose rights it has.
pub async fn client_in(
    path: &Path,
    user: &str,
    group: Option<&str>,
) -> Result<Client, ClientError> {
    let mut config = config(path).await?;
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = group.map(|group| vec![group.to_owned()]);
    client_of(config)
}

/// Returns the configuration of a client with the rights of the kubeconfig.
pub async fn config(path: &Path) -> Result<Config, ClientError> {
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
    // An earlier caller has chosen the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::try_from(config).map_err(|source| ClientError::Client(Box::new(source)))
}

fn content(server: &str, ca: &Path, identity: &Identity) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "harness",
            "cluster": {"server": server, "certificate-authority": ca},
        }],
        "users": [{
            "name": "harness",
            "user": {"client-certificate": identity.certificate, "client-key": identity.key},
        }],
        "contexts": [{"name": "harness", "context": {"cluster": "harness", "user": "harness"}}],
        "current-context": "harness",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_another_user_or_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let (own, copy) = (dir.path().join("own"), dir.path().join("copy"));
        let identity = Identity {
            certificate: "/admin.crt".into(),
            key: "/admin.key".into(),
        };
        write(&own, "https://127.0.0.1:1", dir.path(), &identity).unwrap();
        write_as(&own, &copy, "ann", Some("team")).unwrap();
        let read = Kubeconfig::read_from(&copy).unwrap();
        let user = read.auth_infos[0].auth_info.clone().unwrap();
        assert_eq!(user.impersonate.as_deref(), Some("ann"));
        assert_eq!(user.impersonate_groups, Some(vec!["team".to_owned()]));
        assert_eq!(user.client_certificate.as_deref(), Some("/admin.crt"));
        write_in(&own, &copy, "team").unwrap();
        let read = Kubeconfig::read_from(&copy).unwrap();
        let context = read.contexts[0].context.clone().unwrap();
        assert_eq!(context.namespace.as_deref(), Some("team"));
    }
}
