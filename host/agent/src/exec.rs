//! `ipu-agent exec`: runs a command in another Pod, as `ssh` would on another machine.

pub mod outcome;
pub mod stream;
pub mod target;

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, Request};
use kube::client::Connection;
use kube::{Client, Config, Resource};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::outcome::NoExitCode;
use self::stream::{Pace, StreamError};
use self::target::TargetError;

/// Longest time that one question to the API server may take before the stream is open.
const ANSWER: Duration = Duration::from_secs(20);

/// A command for another Pod.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// Name of the Pod.
    pub pod: String,
    /// Its namespace; `None` is the namespace of the Pod that the agent runs in.
    pub namespace: Option<String>,
    /// The command and its arguments; no shell is put around it.
    pub command: Vec<String>,
}

/// A Pod.
#[derive(Clone, Debug)]
pub struct PodName {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// Why the command's own exit code is not known.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The asynchronous runtime cannot start.
    #[error("failed to start the agent's runtime")]
    Runtime(#[source] std::io::Error),
    /// The Pod that the agent runs in has no service account.
    #[error(
        "failed to read the service account of this Pod; is its automountServiceAccountToken false?"
    )]
    Config(#[source] kube::config::InClusterError),
    /// The client cannot be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] kube::Error),
    /// The Pod cannot be read.
    #[error(
        "failed to find Pod {} in namespace {}; {}",
        .0.name, .0.namespace, outcome::advice(.1)
    )]
    FindPod(PodName, #[source] kube::Error),
    /// The Pod cannot take a command now.
    #[error("failed to run a command in Pod {} of namespace {}", .0.name, .0.namespace)]
    Target(PodName, #[source] TargetError),
    /// The request cannot be built.
    #[error("failed to build the request for Pod {0}; the command must not be empty")]
    Build(String, #[source] kube::core::request::Error),
    /// The stream cannot be opened.
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
    /// The stream broke.
    #[error(
        "lost the command in Pod {} of namespace {}; it may still be running",
        .0.name, .0.namespace
    )]
    Stream(PodName, #[source] StreamError),
    /// The command did not run.
    #[error("failed to run the command in Pod {} of namespace {}", .0.name, .0.namespace)]
    NoExitCode(PodName, #[source] NoExitCode),
    /// Signals cannot be listened to.
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),
}

/// Runs the command with our stdin, stdout and stderr, and answers its exit code; 128 + n where
/// signal n ended the agent first, in which case the remote command is left to its own end.
pub fn run(request: &ExecRequest) -> Result<u8, ExecError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ExecError::Runtime)?;
    let result = runtime.block_on(async {
        let mut ending = Ending::listen()?;
        tokio::select! {
            code = execute(request) => code,
            signal = ending.next() => Ok(128_u8.saturating_add(signal)),
        }
    });
    // A thread may still be waiting for a line of stdin that never comes.
    runtime.shutdown_background();
    result
}

async fn execute(request: &ExecRequest) -> Result<u8, ExecError> {
    let mut config = Config::incluster().map_err(ExecError::Config)?;
    // A command may be silent, or deaf, for hours.
    config.read_timeout = None;
    config.write_timeout = None;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(ExecError::Client)?;
    execute_with(client, &namespace, request).await
}

/// As `run`, with a client of one's own, and without listening to signals. `namespace` is meant
/// where the request names none.
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
    let container = remote.container().await?;
    let connection = remote.open(container, &request.command).await?;
    remote.carry(connection).await
}

/// One Pod, seen from the agent.
struct Remote {
    pod: PodName,
    client: Client,
}

impl Remote {
    /// Asks which container is meant and makes sure that it runs. Reading does no harm, so it is
    /// tried again whatever went wrong on the way.
    async fn container(&self) -> Result<String, ExecError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.pod.namespace);
        let get = || async { pods.get(&self.pod.name).await };
        let found = get.retry(patience()).when(outcome::is_transient);
        let pod = self
            .in_time(found)
            .await?
            .map_err(|source| ExecError::FindPod(self.pod.clone(), source))?;
        target::container(&pod)
            .map(ToOwned::to_owned)
            .map_err(|source| ExecError::Target(self.pod.clone(), source))
    }

    /// Opens the stream. It is tried again only where the command was certainly not started.
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
        let status = stream::carry(
            connection.into_stream(),
            (half_close, Pace::default()),
            tokio::io::stdin(),
            tokio::io::stdout(),
            tokio::io::stderr(),
        )
        .await
        .map_err(|source| ExecError::Stream(self.pod.clone(), source))?;
        outcome::exit_code(&status)
            .map_err(|source| ExecError::NoExitCode(self.pod.clone(), source))
    }

    async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, ExecError> {
        tokio::time::timeout(ANSWER, answer)
            .await
            .map_err(|_| ExecError::Late(self.pod.clone()))
    }
}

/// Six tries within about six seconds; the jitter keeps the workers of a large job apart.
fn patience() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(2))
        .with_max_times(6)
        .with_jitter()
}

/// The signals that end the agent.
struct Ending {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Ending {
    fn listen() -> Result<Self, ExecError> {
        let listen = |kind| signal(kind).map_err(ExecError::Signals);
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    /// The number of the next one.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.term.recv() => 15,
            _ = self.int.recv() => 2,
            _ = self.hup.recv() => 1,
        }
    }
}
