//! Pure: the command lines of etcd and of the Kubernetes control plane.

use std::path::{Path, PathBuf};

use crate::pki::{
    cluster_ca, front_proxy_ca, identity, service_account_key, service_account_public_key,
};

/// The port number that keeps a program from listening.
const NO_PORT: &str = "--secure-port=0";

/// Addresses and data folder of etcd. It listens on loopback only, without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    /// Folder of its data.
    pub data: PathBuf,
    /// Port for clients.
    pub client_port: u16,
    /// Port for other members. There are none.
    pub peer_port: u16,
    /// Most bytes of its data, if not etcd's default of 2 GiB.
    pub quota: Option<u64>,
    /// Whether it flushes each write to disk.
    pub fsync: bool,
}

/// The addresses of the API server, and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiServer {
    /// Folder of the certificates.
    pub pki: PathBuf,
    /// Port of etcd on loopback.
    pub etcd_port: u16,
    /// Address that it listens on.
    pub bind: &'static str,
    /// Address under which the cluster reaches it.
    pub advertise: &'static str,
    /// Port that it listens on.
    pub port: u16,
    /// Range of the addresses of Services.
    pub services: &'static str,
    /// Whether it has nodes and controllers.
    pub whole_cluster: bool,
    /// File with the configuration of its admission plugins.
    pub admission_config: Option<PathBuf>,
}

impl Etcd {
    /// URL for clients.
    pub fn client(&self) -> String {
        format!("http://127.0.0.1:{}", self.client_port)
    }

    /// URL for other members.
    pub fn peer(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port)
    }

    /// Arguments of etcd. By default, writes are not flushed to disk, because the data does not
    /// outlive the run.
    pub fn args(&self) -> Vec<String> {
        let (client, peer) = (self.client(), self.peer());
        let mut args = vec![
            format!("--data-dir={}", self.data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=warn".to_owned(),
        ];
        args.extend((!self.fsync).then(|| "--unsafe-no-fsync".to_owned()));
        let quota = self
            .quota
            .map(|bytes| format!("--quota-backend-bytes={bytes}"));
        args.extend(quota);
        args
    }
}

impl ApiServer {
    /// Arguments of kube-apiserver.
    pub fn args(&self) -> Vec<String> {
        let pki = &self.pki;
        let serving = identity(pki, "apiserver");
        let front_proxy = identity(pki, "front-proxy");
        let mut args = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--bind-address={}", self.bind),
            format!("--advertise-address={}", self.advertise),
            format!("--secure-port={}", self.port),
            format!("--service-cluster-ip-range={}", self.services),
            file("tls-cert-file", &serving.certificate),
            file("tls-private-key-file", &serving.key),
            file("client-ca-file", &cluster_ca(pki)),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            file("service-account-key-file", &service_account_public_key(pki)),
            file(
                "service-account-signing-key-file",
                &service_account_key(pki),
            ),
            file("requestheader-client-ca-file", &front_proxy_ca(pki)),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            file("proxy-client-cert-file", &front_proxy.certificate),
            file("proxy-client-key-file", &front_proxy.key),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
        ];
        let admission = self.admission_config.as_deref();
        args.extend(admission.map(|path| file("admission-control-config-file", path)));
        args.extend(if self.whole_cluster {
            self.args_with_nodes()
        } else {
            args_alone()
        });
        args
    }

    fn args_with_nodes(&self) -> Vec<String> {
        let kubelets = identity(&self.pki, "kube-apiserver-kubelet-client");
        vec![
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            file("kubelet-client-certificate", &kubelets.certificate),
            file("kubelet-client-key", &kubelets.key),
            file("kubelet-certificate-authority", &cluster_ca(&self.pki)),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ]
    }
}

/// Without a controller manager, namespaces have no default service account, so Pods must not wait
/// for one, and nobody removes the taint of a new node. The endpoint of the API server must not be
/// a loopback address.
fn args_alone() -> Vec<String> {
    vec![
        "--authorization-mode=RBAC".to_owned(),
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ]
}

/// Arguments of kube-controller-manager. Its default rate would delay the first service accounts
/// for seconds, and its default plug-in folder is in /usr. It listens on no port, so that it does
/// not conflict with another cluster on the machine. No program reads its health or metrics.
pub fn controller_manager(pki: &Path, kubeconfig: &Path, plugins: &Path) -> Vec<String> {
    vec![
        file("kubeconfig", kubeconfig),
        NO_PORT.to_owned(),
        "--leader-elect=false".to_owned(),
        file(
            "service-account-private-key-file",
            &service_account_key(pki),
        ),
        file("root-ca-file", &cluster_ca(pki)),
        file("client-ca-file", &cluster_ca(pki)),
        "--use-service-account-credentials=true".to_owned(),
        file("flex-volume-plugin-dir", plugins),
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
    ]
}

/// Arguments of a kube-controller-manager with the Job controller alone, whose requests no rate
/// limits.
pub fn job_controller(kubeconfig: &Path) -> Vec<String> {
    vec![
        file("kubeconfig", kubeconfig),
        NO_PORT.to_owned(),
        "--controllers=job-controller".to_owned(),
        "--concurrent-job-syncs=16".to_owned(),
        "--leader-elect=false".to_owned(),
        "--kube-api-qps=100000".to_owned(),
        "--kube-api-burst=100000".to_owned(),
    ]
}

/// Arguments of kube-scheduler. It listens on no port either.
pub fn scheduler(kubeconfig: &Path) -> Vec<String> {
    vec![
        file("kubeconfig", kubeconfig),
        NO_PORT.to_owned(),
        "--leader-elect=false".to_owned(),
    ]
}

fn file(flag: &str, path: &Path) -> String {
    format!("--{flag}={}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_server() -> ApiServer {
        ApiServer {
            pki: "/pki".into(),
            etcd_port: 2379,
            bind: "127.0.0.1",
            advertise: "127.0.0.1",
            port: 6443,
            services: "127.77.0.0/24",
            whole_cluster: false,
            admission_config: None,
        }
    }

    #[test]
    fn only_a_whole_cluster_speaks_to_kubelets() {
        let alone = api_server().args();
        let whole = ApiServer {
            whole_cluster: true,
            ..api_server()
        }
        .args();
        let kubelet = "--kubelet-client-key=/pki/kube-apiserver-kubelet-client.key".to_owned();
        assert!(whole.contains(&kubelet));
        assert!(!alone.contains(&kubelet));
        let disabled = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition";
        assert!(alone.contains(&disabled.to_owned()));
    }

    #[test]
    fn admission_plugins_are_configured_by_a_file_where_there_is_one() {
        let configured = ApiServer {
            admission_config: Some("/admission.yaml".into()),
            ..api_server()
        };
        let flag = "--admission-control-config-file=/admission.yaml";
        for (server, expected) in [(configured, vec![flag]), (api_server(), Vec::new())] {
            let mut found = server.args();
            found.retain(|arg| arg.contains("admission-control-config-file"));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn controllers_listen_on_no_port() {
        let path = Path::new("/x");
        for args in [
            controller_manager(path, path, path),
            job_controller(path),
            scheduler(path),
        ] {
            assert!(args.contains(&"--secure-port=0".to_owned()), "{args:?}");
            assert!(!args.iter().any(|arg| arg.contains("bind-address")));
        }
    }

    #[test]
    fn etcd_listens_on_loopback_only() {
        let etcd = Etcd {
            data: "/data".into(),
            client_port: 1,
            peer_port: 2,
            quota: None,
            fsync: false,
        };
        assert!(etcd.args().contains(&"--unsafe-no-fsync".to_owned()));
        let urls = etcd.args().into_iter().filter(|arg| arg.contains("http"));
        for url in urls {
            assert!(url.contains("http://127.0.0.1:"), "{url}");
        }
    }
}
