//! A user of the API server that calls the webhooks, who sees the warnings.

use std::path::PathBuf;

use cluster::control_plane::ControlPlane;
use cluster::kubeconfig;
use ipu_api::ipujob::IPUJob;
use ipu_ports::certificates::renewal::CertificateManager;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams, Request};
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;

use super::fixture::certificate_manager;

/// The result of a create request.
#[derive(Debug)]
pub(crate) struct Created {
    /// The object as the API server stored it.
    pub object: Value,
    /// The warnings that a user sees.
    pub warnings: Vec<String>,
}

/// A user of the API server.
pub(crate) struct View {
    kubeconfig: PathBuf,
    client: Client,
    jobs: Api<IPUJob>,
}

impl View {
    /// An admin with this client, in the namespace `default`.
    pub(super) fn new(kubeconfig: PathBuf, client: Client) -> Self {
        let jobs = Api::default_namespaced(client.clone());
        Self {
            kubeconfig,
            client,
            jobs,
        }
    }

    /// An admin of a control plane.
    pub(super) async fn of(control_plane: &ControlPlane) -> Self {
        let client = control_plane.client().await.unwrap();
        Self::new(control_plane.kubeconfig(), client)
    }

    /// Returns the kubeconfig of an admin.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Returns a client with all rights.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the same user in another namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            kubeconfig: self.kubeconfig.clone(),
            client: self.client.clone(),
            jobs: Api::namespaced(self.client.clone(), namespace),
        }
    }

    /// Returns the same user, whose client does not repeat what a server asks it to repeat.
    pub(crate) async fn without_retries(&self) -> Self {
        let mut config = kubeconfig::config(&self.kubeconfig).await.unwrap();
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        Self::new(self.kubeconfig.clone(), client)
    }

    /// Returns another user with all rights, in the namespace `default`.
    pub(crate) async fn as_user(&self, name: &str) -> Self {
        let mut config = kubeconfig::config(&self.kubeconfig).await.unwrap();
        config.auth_info.impersonate = Some(name.to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
        let client = Client::try_from(config).unwrap();
        Self::new(self.kubeconfig(), client)
    }

    /// Returns the API of the jobs in the namespace.
    pub(crate) fn jobs(&self) -> Api<IPUJob> {
        self.jobs.clone()
    }

    /// Returns a certificate manager as that of the webhooks, for another Secret.
    pub(crate) fn certificate_manager(&self, secret: &str) -> CertificateManager {
        certificate_manager(self.client(), secret)
    }

    /// Creates a job as kubectl does, and collects the warnings, which kube's `Api` drops.
    pub(crate) async fn create(&self, job: &Value) -> Result<Created, Status> {
        self.post(job, &PostParams::default()).await
    }

    /// The same in a dry run.
    pub(crate) async fn create_dry(&self, job: &Value) -> Result<Created, Status> {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        self.post(job, &dry).await
    }

    async fn post(&self, job: &Value, parameters: &PostParams) -> Result<Created, Status> {
        let request = Request::new(self.jobs.resource_url());
        let request = request.create(parameters, job.to_string().into_bytes());
        self.send(request.unwrap()).await
    }

    /// Changes a job by a merge patch.
    pub(crate) async fn patch(&self, name: &str, change: &Value) -> Result<Created, Status> {
        let request = Request::new(self.jobs.resource_url());
        let parameters = PatchParams::default();
        let request = request.patch(name, &parameters, &Patch::Merge(change));
        self.send(request.unwrap()).await
    }

    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<Created, Status> {
        let response = self.client.send(request.map(Body::from)).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect_bytes().await.unwrap();
        if !parts.status.is_success() {
            return Err(serde_json::from_slice(&body).unwrap());
        }
        let warnings = parts.headers.get_all("warning").into_iter();
        Ok(Created {
            object: serde_json::from_slice(&body).unwrap(),
            warnings: warnings
                .map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned())
                .collect(),
        })
    }
}
