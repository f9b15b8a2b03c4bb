//! The real Kueue: its chart's objects and its manager, as a process beside an API server that a
//! test can kill and start again, or installed on the cluster with nodes.

mod chart;
pub mod configuration;
pub mod installed;
pub mod objects;
pub mod workload;

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use self::chart::Rendered;
use cluster::command::{self, CommandError};
use cluster::control_plane::{ControlPlane, free_ports};
use cluster::definitions;
use cluster::files::{FileError, make_dir, write, write_json};
use cluster::http;
use cluster::images::ImageError;
use cluster::kubeconfig::{self, ClientError};
use cluster::log_tail::LogTail;
use cluster::progress::Progress;
use cluster::settings::{Settings, SettingsError};
use cluster::supervisor::{Program, Supervisor};
use cluster::tools::{Tools, ToolsError};
use cluster::wait::{Seen, WaitedTooLong, until, until_or_ended};

/// Kueue's namespace.
pub const NAMESPACE: &str = "kueue-system";

/// Kueue's Helm release. The chart names its objects after it.
const RELEASE: &str = "kueue";

/// The ServiceAccount of the manager.
const ACCOUNT: &str = "kueue-controller-manager";

/// The Secret in which the manager keeps the certificate of its webhooks.
const CERTIFICATE: &str = "kueue-webhook-server-cert";

/// Longest start of the manager on a busy machine.
const READY: Duration = Duration::from_mins(3);

/// Lines of its log that a failure shows.
const LINES: usize = 30;

/// Failure to provide Kueue.
#[derive(Debug, thiserror::Error)]
pub enum KueueError {
    /// The folders are unknown.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A program could not be built.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// An image could not be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// An image could not be imported on the nodes.
    #[error(transparent)]
    Cluster(#[from] cluster::lifecycle::ClusterError),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output of the chart is not YAML.
    #[error("failed to read what Helm makes of Kueue's chart")]
    Yaml(#[source] serde_saphyr::Error),
    /// A command failed.
    #[error("failed to {action}")]
    Command {
        /// The action that failed.
        action: &'static str,
        /// The error.
        #[source]
        source: CommandError,
    },
    /// The process or its folder could not be made.
    #[error("failed to start Kueue")]
    Start(#[source] io::Error),
    /// It ended before it became ready.
    #[error("Kueue ended while it started; {0}")]
    Ended(LogTail),
    /// The text of an object is not valid.
    #[error("failed to read an object of Kueue")]
    Object(#[source] serde_json::Error),
    /// The API server refused an object.
    #[error(transparent)]
    Waited(#[from] WaitedTooLong),
    /// It did not become ready.
    #[error("Kueue is not ready: {waited}; {log}")]
    NotReady {
        /// The condition that was not met.
        waited: WaitedTooLong,
        /// The end of its log.
        log: LogTail,
    },
}

/// Kueue's manager beside an API server, with only the rights of its own account. When this is
/// dropped, the manager is killed. Its logs remain if a test has failed.
pub struct Kueue {
    // Fields drop in this order: the process ends before its folder is removed.
    supervisor: Option<Supervisor>,
    program: Program,
    folder: tempfile::TempDir,
    client: Client,
    readiness: String,
    starts: usize,
}

impl Kueue {
    /// Installs Kueue on an API server without controller manager, and waits until it is ready.
    pub async fn start(plane: &ControlPlane) -> Result<Self, KueueError> {
        Self::start_with(plane, &json!({})).await
    }

    /// Like `start`, with changes of the manager's Configuration as a JSON merge patch.
    pub async fn start_with(plane: &ControlPlane, changes: &Value) -> Result<Self, KueueError> {
        let settings = Settings::from_env()?;
        let names = ["helm", "kubernetes", "kueue"];
        let tools = Tools::fetch_some(&settings, &Progress::start(), &names)?;
        let source = Tools::source(&settings, "kueue")?;
        let folder = tempfile::tempdir().map_err(KueueError::Start)?;
        let [health, webhook] = free_ports().map_err(KueueError::Start)?;
        let certificates = certificates(folder.path());
        make_dir(&certificates)?;
        let given = folder.path().join("given.json");
        let mut configuration = configuration::of_process(health, webhook, &certificates);
        json_patch::merge(&mut configuration, changes);
        write_json(&given, &configuration)?;
        let helm = tools.program("helm");
        let rendered = chart::render(helm, &source.join("charts/kueue"), &given, webhook)?;
        let kubectl = tools.program("kubectl");
        install(kubectl, &plane.kubeconfig(), folder.path(), &rendered)?;
        let client = plane.client().await?;
        until("Kueue's CRDs to be served", READY, async || {
            Ok::<_, Infallible>(definitions::are_served(&client).await)
        })
        .await?;
        let account = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let kubeconfig = folder.path().join("kubeconfig");
        kubeconfig::write_as(&plane.kubeconfig(), &kubeconfig, &account, None)?;
        once_allowed(&kubeconfig).await?;
        let path = folder.path().join("configuration.yaml");
        write(&path, &rendered.configuration)?;
        let mut kueue = Self {
            supervisor: None,
            program: Program {
                name: "kueue",
                path: tools.program("kueue").to_owned(),
                args: vec![
                    format!("--config={}", path.display()),
                    "--zap-log-level=2".to_owned(),
                ],
                env: vec![("KUBECONFIG", kubeconfig.into())],
                log: PathBuf::new(),
            },
            folder,
            client,
            readiness: format!("http://127.0.0.1:{health}/readyz"),
            starts: 0,
        };
        kueue.restart().await?;
        Ok(kueue)
    }

    /// Kills the manager.
    pub fn kill(&mut self) {
        self.supervisor = None;
    }

    /// Starts the manager, after killing it if it runs. Returns when the API server calls the
    /// webhooks.
    pub async fn restart(&mut self) -> Result<(), KueueError> {
        self.kill();
        self.starts += 1;
        let log = format!("kueue-{}.log", self.starts);
        self.program.log = self.folder.path().join(log);
        let programs = vec![self.program.clone()];
        self.supervisor = Some(Supervisor::start(programs).map_err(KueueError::Start)?);
        self.once("its certificate is made", async || {
            self.mount_certificate().await
        })
        .await?;
        self.once("it says so itself", async || {
            http::request("GET", &self.readiness, "").await.is_ok()
        })
        .await?;
        self.once("its webhooks are called", async || self.is_called().await)
            .await
    }

    /// The end of the log since the last start.
    pub fn log(&self) -> LogTail {
        LogTail::read(&self.program.log, LINES)
    }

    /// Waits until the condition holds while the manager runs.
    async fn once(&self, what: &str, holds: impl AsyncFnMut() -> bool) -> Result<(), KueueError> {
        let check = || match self.supervisor.as_ref().and_then(Supervisor::first_dead) {
            None => Ok(()),
            Some(_) => Err(KueueError::Ended(self.log())),
        };
        let waited = until_or_ended(what, READY, check, holds).await;
        waited.unwrap_or_else(|waited| {
            Err(KueueError::NotReady {
                waited,
                log: self.log(),
            })
        })
    }

    /// Acts as the kubelet: writes the Secret of the webhooks into the folder in which the manager
    /// reads it. Returns whether the Secret exists.
    async fn mount_certificate(&self) -> bool {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = secrets.get(CERTIFICATE).await.ok();
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let folder = certificates(self.folder.path());
        // The manager waits for the certificate, and then reads both files.
        ["tls.key", "tls.crt"].into_iter().all(|name| {
            let file = data.get(name);
            file.is_some_and(|file| write(&folder.join(name), &file.0).is_ok())
        })
    }

    /// Whether the API server reaches the webhooks and trusts them.
    async fn is_called(&self) -> bool {
        let probe = objects::resource_flavor("probe", &[]);
        let Ok(probe) = serde_json::from_value::<DynamicObject>(probe) else {
            return false;
        };
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let flavors = api(&self.client, &probe);
        flavors.create(&dry_run, &probe).await.is_ok()
    }
}

impl Drop for Kueue {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("Kueue: {}", self.log());
        }
    }
}

/// Acts as the admin: applies an object of Kueue, in its namespace if it names one. Kueue's
/// webhooks refuse objects until they answer, so it repeats the request.
pub async fn apply(client: &Client, object: &Value) -> Result<DynamicObject, KueueError> {
    let object: DynamicObject =
        serde_json::from_value(object.clone()).map_err(KueueError::Object)?;
    let api = api(client, &object);
    let name = object.name_any();
    let params = PatchParams::apply("admin").force();
    let applied = until(format!("{name} to be applied"), READY, async || {
        let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
        applied.map(Seen::Yes)
    });
    Ok(applied.await?)
}

/// The API of an object's kind, which is a kind of Kueue.
fn api(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.as_ref();
    let kind = types.map_or("", |types| types.kind.as_str());
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind));
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Applies the objects of the chart, in a namespace of their own, as an admin with all rights.
fn install(
    kubectl: &Path,
    admin: &Path,
    folder: &Path,
    rendered: &Rendered,
) -> Result<(), KueueError> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    let mut items = vec![namespace];
    items.extend(rendered.objects.iter().cloned());
    items.extend(objects::rights_on_jobs());
    let list = folder.join("objects.json");
    write_json(
        &list,
        &json!({"apiVersion": "v1", "kind": "List", "items": items}),
    )?;
    let list = list.to_string_lossy();
    let mut apply = Command::new(kubectl);
    apply.arg("--kubeconfig").arg(admin).env("HOME", folder);
    apply.args(["apply", "--server-side", "--filename", &list]);
    command::run(&mut apply).map_err(|source| KueueError::Command {
        action: "apply the objects of Kueue's chart",
        source,
    })
}

/// Waits until the account of the manager has its rights. If a manager is refused at its start, it
/// waits for ever.
async fn once_allowed(kubeconfig: &Path) -> Result<(), KueueError> {
    let manager = kubeconfig::client(kubeconfig).await?;
    let secrets: Api<Secret> = Api::namespaced(manager, NAMESPACE);
    until("the rights of Kueue's account", READY, async || {
        // The API server learns of the binding of a role with a delay, and forbids the request
        // until then.
        Ok::<_, Infallible>(Seen::from(secrets.get(CERTIFICATE).await))
    })
    .await?;
    Ok(())
}

/// The folder in which the manager reads the certificate of its webhooks.
fn certificates(folder: &Path) -> PathBuf {
    folder.join("certificates")
}
