//! `ipu-agent exec`: runs a command in another Pod, as `ssh` would on another machine.

pub mod outcome;
pub mod prted;
pub mod stream;
pub mod target;

use std::path::PathBuf;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, Request};
use kube::client::Connection;
use kube::{Client, Config, Resource};

use self::outcome::NoExitCode;
use self::stream::{KeepAlive, StreamError};
use self::target::TargetError;
use crate::ending::Ending;

/// Time limit of one request to the API server before the stream is open.
const ANSWER: Duration = Duration::from_secs(20);

/// A command for another Pod.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// Name of the Pod.
    pub pod: String,
    /// Its namespace. `None`: the namespace of the agent's Pod.
    pub namespace: Option<String>,
    /// The command and its arguments, without a shell.
    pub command: Vec<String>,
    /// Path of the agent, which is the same in the launcher and the workers. `None`: no daemon gets
    /// a host name.
    pub agent: Option<PathBuf>,
    /// What is known of the Pod. `None`: the agent reads the Pod.
    pub known: Option<KnownPod>,
}

/// A Pod that the agent cannot read, because its launcher has shared rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    /// The container for the command.
    pub container: String,
    /// Whether it has the host name of its node.
    pub uses_host_network: bool,
}

/// Name and namespace of a Pod.
#[derive(Clone, Debug)]
pub struct PodName {
    /// Name of the Pod.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// Reason why the exit code of the command is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The asynchronous runtime could not be started.
    #[error("failed to start the agent's runtime")]
    Runtime(#[source] std::io::Error),
    /// The agent's Pod has no service account.
    #[error(
        "failed to read the service account of this Pod; is its automountServiceAccountToken false?"
    )]
    Config(#[source] kube::config::InClusterError),
    /// The client could not be created.
    #[error("failed to make a client of the API server")]
    Client(#[source] kube::Error),
    /// The Pod cannot be read.
    #[error(
        "failed to find Pod {} in namespace {}; {}",
        .0.name, .0.namespace, outcome::advice(.1)
    )]
    FindPod(PodName, #[source] kube::Error),
    /// The Pod cannot run a command now.
    #[error("failed to run a command in Pod {} of namespace {}", .0.name, .0.namespace)]
    Target(PodName, #[source] TargetError),
    /// The request could not be built.
    #[error("failed to build the request for Pod {0}; the command must not be empty")]
    Build(String, #[source] kube::core::request::Error),
    /// The stream could not be opened.
    #[error(
        "failed to open a stream to Pod {} in namespace {}; {}",
        .0.name, .0.namespace, outcome::advice(.1)
    )]
    Open(PodName, #[source] kube::Error),
    /// The API server does not answer.
    #[error(
        "failed to reach Pod {} in namespace {}: no answer within 20 seconds",
        .0.name, .0.namespace
    )]
    Late(PodName),
    /// The stream failed.
    #[error(
        "lost the command in Pod {} of namespace {}; it may still be running",
        .0.name, .0.namespace
    )]
    Stream(PodName, #[source] StreamError),
    /// The command did not run.
    #[error("failed to run the command in Pod {} of namespace {}", .0.name, .0.namespace)]
    NoExitCode(PodName, #[source] NoExitCode),
    /// The API server could not reach the node.
    #[error(
        "failed to reach the node of Pod {} in namespace {}, and the retries failed too",
        .0.name, .0.namespace
    )]
    Unreached(PodName, #[source] NoExitCode),
    /// The agent cannot listen for signals.
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),
}

/// Runs the command with our stdin, stdout and stderr, and returns its exit code. If signal n ends
/// the agent first, this is 128 + n, and the remote command continues.
pub fn run(request: &ExecRequest) -> Result<u8, ExecError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ExecError::Runtime)?;
    let result = runtime.block_on(async {
        let mut ending = Ending::listen().map_err(ExecError::Signals)?;
        tokio::select! {
            code = execute(request) => code,
            code = ending.next() => Ok(code),
        }
    });
    // A thread may still wait for a line of stdin.
    runtime.shutdown_background();
    result
}

async fn execute(request: &ExecRequest) -> Result<u8, ExecError> {
    let mut config = Config::incluster().map_err(ExecError::Config)?;
    // A command may write and read nothing for hours.
    config.read_timeout = None;
    config.write_timeout = None;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(ExecError::Client)?;
    execute_with(client, &namespace, request).await
}

/// Like `run`, with a given client and without signals. `namespace` is the default namespace of the
/// request.
pub async fn execute_with(
    client: Client,
    namespace: &str,
    request: &ExecRequest,
) -> Result<u8, ExecError> {
    let namespace = request.namespace.as_deref().unwrap_or(namespace);
    let pod = PodName {
        name: request.pod.clone(),
        namespace: namespace.to_owned(),
    };
    let remote = Remote { pod, client };
    let (container, command) = match &request.known {
        Some(known) => (known.container.clone(), known_command(known, request)),
        None => remote.read_command(request).await?,
    };
    let attempt = || async {
        let connection = remote.open(container.clone(), &command).await?;
        remote.carry(connection).await
    };
    // The command has certainly not started, and nothing of its streams is lost.
    let is_repeatable = |error: &ExecError| matches!(error, ExecError::Unreached(..));
    attempt.retry(patience()).when(is_repeatable).await
}

/// The command for a Pod that the agent cannot read. The admission policy allows commands of the
/// agent only.
fn known_command(known: &KnownPod, request: &ExecRequest) -> Vec<String> {
    match &request.agent {
        Some(agent) => prted::through_agent(
            &request.pod,
            known.uses_host_network,
            agent,
            &request.command,
        ),
        None => request.command.clone(),
    }
}

/// A remote Pod.
struct Remote {
    pod: PodName,
    client: Client,
}

impl Remote {
    /// Reads the Pod. Returns its container for the command, and the command for this container.
    async fn read_command(
        &self,
        request: &ExecRequest,
    ) -> Result<(String, Vec<String>), ExecError> {
        let found = self.find().await?;
        let container = target::container(&found)
            .map_err(|source| ExecError::Target(self.pod.clone(), source))?;
        let command = match &request.agent {
            Some(agent) => prted::with_host_name(&found, container, agent, &request.command),
            None => request.command.clone(),
        };
        Ok((container.to_owned(), command))
    }

    /// Reads the Pod. A read is harmless, so it retries after any error.
    async fn find(&self) -> Result<Pod, ExecError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.pod.namespace);
        let get = || async { pods.get(&self.pod.name).await };
        let found = get.retry(patience()).when(outcome::is_transient);
        self.in_time(found)
            .await?
            .map_err(|source| ExecError::FindPod(self.pod.clone(), source))
    }

    /// Opens the stream. It retries only if the command has certainly not started.
    async fn open(&self, container: String, command: &[String]) -> Result<Connection, ExecError> {
        let parameters = AttachParams::default().container(container).stdin(true);
        let requests = Request::new(Pod::url_path(&(), Some(&self.pod.namespace)));
        let build = || requests.exec(&self.pod.name, command, &parameters);
        build().map_err(|source| ExecError::Build(self.pod.name.clone(), source))?;
        let connect = || async {
            let request = build().map_err(kube::Error::BuildRequest)?;
            self.client.connect(request).await
        };
        let opened = connect.retry(patience()).when(outcome::was_turned_away);
        self.in_time(opened)
            .await?
            .map_err(|source| ExecError::Open(self.pod.clone(), source))
    }

    async fn carry(&self, connection: Connection) -> Result<u8, ExecError> {
        let half_close = connection.supports_stream_close();
        let end = stream::carry(
            connection.into_stream(),
            (half_close, KeepAlive::default()),
            tokio::io::stdin(),
            tokio::io::stdout(),
            tokio::io::stderr(),
        )
        .await
        .map_err(|source| ExecError::Stream(self.pod.clone(), source))?;
        outcome::exit_code(&end.status).map_err(|source| {
            let pod = self.pod.clone();
            if source.was_never_connected() && !end.has_exchanged {
                ExecError::Unreached(pod, source)
            } else {
                ExecError::NoExitCode(pod, source)
            }
        })
    }

    async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, ExecError> {
        tokio::time::timeout(ANSWER, answer)
            .await
            .map_err(|_| ExecError::Late(self.pod.clone()))
    }
}

/// Six attempts within about six seconds. The jitter spreads the workers of a large job.
fn patience() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(2))
        .with_max_times(6)
        .with_jitter()
}
