//! The API server and the namespace, as the kubeconfig of the user and the options name them.

use std::path::PathBuf;

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::error::KubectlError;

/// Options that choose the API server and the namespace, as those of kubectl.
#[derive(Args, Clone, Debug, Default)]
pub struct ConnectionOptions {
    /// Path of the kubeconfig [default: $KUBECONFIG, then ~/.kube/config].
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one].
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace [default: that of the context; for `top`, `dashboard` and `goodput --jobs`: all].
    #[arg(long, short, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// A client with the rights of the user, and the namespace.
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The namespace of the options, or else of the context.
    pub namespace: String,
}

impl ConnectionOptions {
    /// Reads the kubeconfig, and makes a client. It sends no request.
    pub async fn connect(&self) -> Result<Connection, KubectlError> {
        let chosen = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let failed = |source| KubectlError::Kubeconfig(Box::new(source));
        let config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
                Config::from_custom_kubeconfig(kubeconfig, &chosen).await
            }
            None => Config::from_kubeconfig(&chosen).await,
        };
        let config = config.map_err(failed)?;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config);
        let client = client.map_err(|source| KubectlError::Client(Box::new(source)))?;
        Ok(Connection { client, namespace })
    }
}
