//! The control plane of the cluster: etcd, API server, controller manager and scheduler, as daemons
//! in the machine's own network.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use super::{ClusterError, wait_until};
use crate::{
    control_plane::{
        flags::{ApiServer, Etcd, controller_manager, scheduler},
        free_ports,
    },
    files::FileError,
    kubeconfig as kubeconfigs,
    pki::Pki,
    plan::{API_PORT, API_SERVICE_IP, HOST_IP, NODES, SERVICE_RANGE, kubeconfig, pki, server},
    process::{Daemon, Daemons},
    settings::Settings,
    tools::Tools,
};

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
pub(super) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";

/// Names of the daemons.
pub(super) const NAMES: [&str; 4] = [ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER];

/// The control plane of the cluster in one run folder.
pub(super) struct Control<'a> {
    run: PathBuf,
    tools: &'a Tools,
    daemons: Daemons,
}

impl<'a> Control<'a> {
    pub(super) fn new(settings: &Settings, tools: &'a Tools) -> Self {
        Self {
            run: settings.run.clone(),
            tools,
            daemons: Daemons::of(&settings.run),
        }
    }

    /// Makes all certificates and kubeconfigs, starts etcd and the API server.
    pub(super) fn start(&self) -> Result<(), ClusterError> {
        self.make_identities()?;
        let [etcd_port, peer_port] = free_ports().map_err(ClusterError::Ports)?;
        let etcd = Etcd {
            data: self.run.join("etcd"),
            client_port: etcd_port,
            peer_port,
            quota: None,
            fsync: false,
        };
        self.daemon(ETCD, etcd.args())?;
        let api_server = ApiServer {
            pki: pki(&self.run),
            etcd_port,
            bind: HOST_IP,
            advertise: HOST_IP,
            port: API_PORT,
            services: SERVICE_RANGE,
            whole_cluster: true,
            admission_config: None,
        };
        self.daemon(API_SERVER, api_server.args())?;
        Ok(())
    }

    /// Waits until the API server answers.
    pub(super) async fn ready(&self) -> Result<Client, ClusterError> {
        let client = kubeconfigs::client(&kubeconfig(&self.run, "admin")).await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let what = "the API server was not ready";
        wait_until(what, &self.daemons, API_SERVER, async || {
            // Without etcd, the API server never answers, so waiting is useless.
            self.daemons.alive(ETCD).is_some() && namespaces.get("kube-system").await.is_ok()
        })
        .await?;
        Ok(client)
    }

    /// Starts controller manager and scheduler.
    pub(super) fn start_controllers(&self) -> Result<(), FileError> {
        let plugins = self.run.join("flex-volume-plugins");
        let manager = kubeconfig(&self.run, CONTROLLER_MANAGER);
        let args = controller_manager(&pki(&self.run), &manager, &plugins);
        self.daemon(CONTROLLER_MANAGER, args)?;
        self.daemon(SCHEDULER, scheduler(&kubeconfig(&self.run, SCHEDULER)))
    }

    fn daemon(&self, name: &str, args: Vec<String>) -> Result<(), FileError> {
        let daemon = Daemon::new(name, self.tools.program(name), args);
        self.daemons.start(&daemon).map(drop)
    }

    fn make_identities(&self) -> Result<(), ClusterError> {
        let dir = pki(&self.run);
        let pki = Pki::make(&dir)?;
        let names = [
            HOST_IP,
            API_SERVICE_IP,
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        pki.server("apiserver", "kube-apiserver", None, &names)?;
        let masters = Some("system:masters");
        pki.client("kube-apiserver-kubelet-client", masters)?;
        let mut users = vec![("admin", "admin".to_owned(), masters)];
        for name in [CONTROLLER_MANAGER, SCHEDULER, "kube-proxy"] {
            users.push((name, format!("system:{name}"), None));
        }
        for node in NODES {
            let group = Some("system:nodes");
            let user = format!("system:node:{}", node.name);
            let serving = format!("{}-serving", node.name);
            pki.server(&serving, &user, group, &[node.name, &node.ip()])?;
            users.push((node.name, user, group));
        }
        for (name, user, group) in users {
            let identity = pki.client(&user, group)?;
            kubeconfigs::write(&kubeconfig(&self.run, name), &server(), &dir, &identity)?;
        }
        Ok(())
    }
}
