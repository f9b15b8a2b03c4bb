//! The first process of a node. It runs in network, mount, process and host-name namespaces of its
//! own, starts containerd, kubelet and kube-proxy there, and reaps what is left behind. When it ends,
//! the kernel ends everything in the node.

use std::{
    fs::{self, File},
    io,
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use nix::{errno::Errno, sys::wait::wait};
use serde::{Deserialize, Serialize};

pub mod config;
pub mod mounts;

use super::{
    cgroups,
    cluster::plan::{API_SERVICE_IP, HOST_IP},
    command::CommandError,
    files::{At, FileError, make_dir, read, write},
    kubeconfig::{self, ClientError},
    log_tail::LogTail,
    network::Ip,
    process::Process,
    tools::debian::Root,
};

/// How long a part may take to answer.
const PATIENCE: Duration = Duration::from_mins(2);

/// Everything that a node needs to know. It is written by `up` and read in the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Name of the Node object and host name.
    pub name: String,
    /// Its address.
    pub ip: String,
    /// Addresses of its Pods.
    pub pod_range: String,
    /// The ways to the Pods of other nodes: range and gateway.
    pub routes: Vec<(String, String)>,
    /// Labels of the Node object.
    pub labels: String,
    /// Folder of its state.
    pub dir: PathBuf,
    /// Folder of the logs.
    pub logs: PathBuf,
    /// Folder of the certificates.
    pub pki: PathBuf,
    /// Kubeconfig of the kubelet.
    pub kubelet_kubeconfig: PathBuf,
    /// Kubeconfig of kube-proxy.
    pub proxy_kubeconfig: PathBuf,
    /// The program containerd; its shim is beside it.
    pub containerd: PathBuf,
    /// The program kubelet.
    pub kubelet: PathBuf,
    /// The program kube-proxy.
    pub kube_proxy: PathBuf,
    /// Folder of the CNI plug-ins.
    pub cni: PathBuf,
    /// Root of the unpacked Debian packages.
    pub debian: PathBuf,
}

/// How far a node is. It stands in a file, by which `up` follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// containerd takes images.
    Containerd,
    /// kubelet and kube-proxy run, and the API server's Service answers.
    Ready,
}

/// Why a node ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The description of the node is not what `up` writes.
    #[error("failed to understand {}", path.display())]
    Spec {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A mount failed.
    #[error(transparent)]
    Mount(#[from] mounts::MountError),
    /// The API server cannot be spoken to.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something of the node could not be set.
    #[error("failed to {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A part did not answer in time.
    #[error("{what} within {} s", PATIENCE.as_secs())]
    TooLate {
        /// What did not happen.
        what: String,
    },
    /// A part of the node ended.
    #[error("{name} ended; {log}")]
    Ended {
        /// Name of the program.
        name: &'static str,
        /// The end of its log.
        log: LogTail,
    },
}

impl NodeSpec {
    /// Path of the file that tells how far the node is.
    fn stage_file(dir: &Path) -> PathBuf {
        dir.join("stage")
    }

    /// How far the node in this folder is.
    pub fn stage(dir: &Path) -> Option<Stage> {
        let text = read(&Self::stage_file(dir)).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn reach(&self, stage: Stage) -> Result<(), FileError> {
        super::files::write_json(&Self::stage_file(&self.dir), &stage)
    }
}

/// Lives as the node until a part of it ends.
pub fn run(spec: &Path) -> Result<(), NodeError> {
    let spec: NodeSpec = serde_json::from_str(&read(spec)?).map_err(|source| NodeError::Spec {
        path: spec.to_owned(),
        source,
    })?;
    prepare(&spec)?;
    let mut parts = Parts::default();
    parts.start(
        &spec,
        "containerd",
        &spec.containerd,
        containerd_args(&spec),
    )?;
    let socket = spec.dir.join("containerd.sock");
    parts.wait("containerd did not answer", || {
        UnixStream::connect(&socket).is_ok()
    })?;
    spec.reach(Stage::Containerd)?;
    parts.wait_for_api_server(&spec)?;
    parts.start(&spec, "kubelet", &spec.kubelet, kubelet_args(&spec))?;
    parts.start(&spec, "kube-proxy", &spec.kube_proxy, proxy_args(&spec))?;
    parts.wait("the Service of the API server did not answer", || {
        TcpStream::connect_timeout(&api_service(), Duration::from_secs(1)).is_ok()
    })?;
    spec.reach(Stage::Ready)?;
    parts.reap()
}

/// Makes the node look like a machine of its own.
fn prepare(spec: &NodeSpec) -> Result<(), NodeError> {
    let system = |action| {
        move |source: Errno| NodeError::System {
            action,
            source: source.into(),
        }
    };
    nix::unistd::sethostname(&spec.name).map_err(system("set the host name"))?;
    for part in [
        "containerd",
        "state",
        "opt",
        "kubelet",
        "pod-logs",
        "container-logs",
        "cni-results",
        "ipam",
        "cni",
        "plugins",
        "sysctl",
        "tools",
        "pods",
    ] {
        make_dir(&spec.dir.join(part))?;
    }
    mounts::make(&spec.dir)?;
    connect(spec)?;
    write_tools(spec)?;
    let cgroup = cgroups::make(&spec.name)?;
    write(&spec.dir.join("containerd.toml"), config::containerd(spec))?;
    write(&spec.dir.join("cni/10-bridge.conflist"), config::cni(spec))?;
    write(&spec.dir.join("resolv.conf"), config::resolv_conf())?;
    write(
        &spec.dir.join("kubelet.json"),
        config::kubelet(spec, &cgroup),
    )?;
    write(&spec.dir.join("kube-proxy.json"), config::kube_proxy(spec))?;
    Ok(())
}

/// Waits for the cable, then sets up the node's end of it.
fn connect(spec: &NodeSpec) -> Result<(), NodeError> {
    let begin = Instant::now();
    while !read(Path::new("/proc/net/dev"))?.contains("eth0:") {
        if begin.elapsed() > PATIENCE {
            return Err(NodeError::TooLate {
                what: "the node got no network device".to_owned(),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let address = format!("{}/24", spec.ip);
    let mut commands = vec![
        vec!["link", "set", "lo", "up"],
        vec!["addr", "add", &address, "dev", "eth0"],
        vec!["link", "set", "eth0", "up"],
        vec!["route", "add", "default", "via", HOST_IP],
    ];
    for (range, gateway) in &spec.routes {
        commands.push(vec!["route", "add", range, "via", gateway]);
    }
    for args in commands {
        Ip::of(Root::new(spec.debian.clone())).run(&args)?;
    }
    let forward = Path::new("/proc/sys/net/ipv4/ip_forward");
    fs::write(forward, "1").at("write", forward)?;
    Ok(())
}

/// Puts the packet-filter tools and runc where kubelet, kube-proxy and containerd look for them.
fn write_tools(spec: &NodeSpec) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt;
    for (name, script) in config::tools(&spec.debian) {
        let path = spec.dir.join("tools").join(name);
        write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .at("make executable", &path)?;
    }
    Ok(())
}

fn containerd_args(spec: &NodeSpec) -> Vec<String> {
    let config = spec.dir.join("containerd.toml").display().to_string();
    vec!["--config".to_owned(), config, "--log-level=info".to_owned()]
}

fn kubelet_args(spec: &NodeSpec) -> Vec<String> {
    vec![
        format!("--config={}", spec.dir.join("kubelet.json").display()),
        format!("--kubeconfig={}", spec.kubelet_kubeconfig.display()),
        format!("--hostname-override={}", spec.name),
        format!("--node-ip={}", spec.ip),
        format!("--node-labels={}", spec.labels),
    ]
}

fn proxy_args(spec: &NodeSpec) -> Vec<String> {
    let config = spec.dir.join("kube-proxy.json");
    vec![format!("--config={}", config.display())]
}

fn api_service() -> std::net::SocketAddr {
    let ip = API_SERVICE_IP.parse().expect("the constant is an address");
    std::net::SocketAddr::new(ip, 443)
}

/// The programs of the node.
#[derive(Default)]
struct Parts {
    running: Vec<(&'static str, Child, PathBuf)>,
}

impl Parts {
    fn start(
        &mut self,
        spec: &NodeSpec,
        name: &'static str,
        program: &Path,
        args: Vec<String>,
    ) -> Result<(), NodeError> {
        let log_path = spec.logs.join(format!("{name}-{}.log", spec.name));
        let log = File::create(&log_path).at("write", &log_path)?;
        let errors = log.try_clone().at("write", &log_path)?;
        let tools = spec.dir.join("tools");
        let own = program.parent().unwrap_or(Path::new("/"));
        let path = format!(
            "{}:{}:/usr/sbin:/usr/bin:/sbin:/bin",
            tools.display(),
            own.display()
        );
        let child = Command::new(program)
            .args(args)
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .at("start", program)?;
        self.running.push((name, child, log_path));
        Ok(())
    }

    /// Waits until `answers`, as long as every part runs.
    fn wait(&self, what: &str, mut answers: impl FnMut() -> bool) -> Result<(), NodeError> {
        let begin = Instant::now();
        while !answers() {
            self.check()?;
            if begin.elapsed() > PATIENCE {
                return Err(NodeError::TooLate {
                    what: what.to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), NodeError> {
        let is_alive = |child: &Child| {
            let pid = i32::try_from(child.id()).ok();
            pid.and_then(Process::find).is_some()
        };
        match self.running.iter().find(|part| !is_alive(&part.1)) {
            Some((name, _, log)) => Err(NodeError::Ended {
                name,
                log: LogTail::read(log, 15),
            }),
            None => Ok(()),
        }
    }

    /// Waits until the API server grants kube-proxy what it needs: a kubelet that starts before it is
    /// ready, and a kube-proxy that starts before its rights are known, would back off for seconds.
    fn wait_for_api_server(&self, spec: &NodeSpec) -> Result<(), NodeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| NodeError::System {
                action: "start the asynchronous runtime",
                source,
            })?;
        let client = runtime.block_on(kubeconfig::client(&spec.proxy_kubeconfig))?;
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
        let question = may_list_services();
        self.wait("the API server did not grant kube-proxy its rights", || {
            let answer = runtime.block_on(reviews.create(&PostParams::default(), &question));
            answer.is_ok_and(|review| review.status.is_some_and(|status| status.allowed))
        })
    }

    /// Reaps every process of the node that has lost its parent, until a part of the node ends.
    fn reap(self) -> Result<(), NodeError> {
        loop {
            let ended = match wait() {
                Ok(status) => status.pid(),
                Err(Errno::EINTR) => continue,
                Err(source) => {
                    return Err(NodeError::System {
                        action: "wait for a process",
                        source: source.into(),
                    });
                }
            };
            let id = ended.and_then(|pid| u32::try_from(pid.as_raw()).ok());
            let part = self
                .running
                .iter()
                .find(|(_, child, _)| Some(child.id()) == id);
            if let Some((name, _, log)) = part {
                return Err(NodeError::Ended {
                    name,
                    log: LogTail::read(log, 15),
                });
            }
        }
    }
}

fn may_list_services() -> SelfSubjectAccessReview {
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some("list".to_owned()),
                resource: Some("services".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}
