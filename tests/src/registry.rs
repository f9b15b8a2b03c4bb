//! A real OCI registry, Debian's docker-registry, on loopback: with or without TLS, with or without
//! a user.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use cluster::{
    control_plane::free_ports,
    files::{FileError, write},
    log_tail::LogTail,
    progress::Progress,
    settings::{Settings, SettingsError},
    supervisor::{Program, Supervisor},
    tools::{ToolsError, debian},
    wait::{Seen, WaitedTooLong, until},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// The user of a registry with users.
pub const USER: &str = "team";

/// The password of that user.
pub const PASSWORD: &str = "a-secret";

/// The user and the hash of the password, as `htpasswd -B` writes them.
const USERS: &str = "team:$2y$05$abcdefghijklmnopqrstuuNnUOSpw7zf/58okJM78yFwF6JcBtEB6\n";

/// Longest time until it answers.
const READY: Duration = Duration::from_mins(1);

/// Failure to provide the registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The folder for caches is unknown.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The program could not be fetched.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its certificate cannot be made.
    #[error("failed to make the registry's certificate")]
    Certificate(#[from] rcgen::Error),
    /// It cannot be started.
    #[error("failed to start the registry")]
    Start(#[source] io::Error),
    /// It does not answer.
    #[error("the registry does not answer; {log}")]
    NotReady {
        /// The end of its log.
        log: LogTail,
        /// The condition.
        #[source]
        source: WaitedTooLong,
    },
}

/// The protocol and the users of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Without TLS, for every client.
    Plain,
    /// With TLS, for every client.
    Tls,
    /// Over TLS, by [`USER`].
    TlsWithUser,
}

/// A registry. Its content is removed with it.
#[derive(Debug)]
pub struct Registry {
    supervisor: Option<Supervisor>,
    folder: TempDir,
    program: PathBuf,
    port: u16,
}

impl Registry {
    /// Starts one on a free port, and waits until it answers.
    pub async fn start(access: Access) -> Result<Self, RegistryError> {
        let settings = Settings::from_env()?;
        let program = debian::registry(&settings, &Progress::start())?;
        let [port] = free_ports().map_err(RegistryError::Start)?;
        let folder = tempfile::tempdir().map_err(RegistryError::Start)?;
        let mut registry = Self {
            supervisor: None,
            folder,
            program,
            port,
        };
        registry.configure(access)?;
        registry.start_again().await?;
        Ok(registry)
    }

    /// Host and port, as references name them.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The certificate of its CA, in PEM.
    pub fn ca(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// A folder for related files, which is removed with the registry.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops the registry. Its content remains.
    pub fn stop(&mut self) {
        self.supervisor = None;
    }

    /// Starts it on the same port, with its content.
    pub async fn start_again(&mut self) -> Result<(), RegistryError> {
        let log = self.path("registry.log");
        let program = Program {
            name: "docker-registry",
            path: self.program.clone(),
            args: vec!["serve".to_owned(), self.text("config.yml")],
            env: Vec::new(),
            log: log.clone(),
        };
        let supervisor = Supervisor::start(vec![program]).map_err(RegistryError::Start)?;
        self.supervisor = Some(supervisor);
        let answers = until("the registry answers", READY, async || {
            let connected = TcpStream::connect(("127.0.0.1", self.port)).await;
            connected.map(|_| Seen::Yes(()))
        });
        answers.await.map_err(|source| RegistryError::NotReady {
            log: LogTail::read(&log, 15),
            source,
        })
    }

    fn configure(&self, access: Access) -> Result<(), RegistryError> {
        let mut config = format!(
            "version: 0.1\n\
             storage:\n  filesystem: {{rootdirectory: {}}}\n\
             http:\n  addr: {}\n",
            self.text("data"),
            self.host()
        );
        if access != Access::Plain {
            self.certify()?;
            let (certificate, key) = (self.text("tls.crt"), self.text("tls.key"));
            let tls = format!("  tls: {{certificate: {certificate}, key: {key}}}\n");
            config.push_str(&tls);
        }
        if access == Access::TlsWithUser {
            write(&self.path("users"), USERS)?;
            let users = self.text("users");
            let auth = format!("auth:\n  htpasswd: {{realm: registry, path: {users}}}\n");
            config.push_str(&auth);
        }
        Ok(write(&self.path("config.yml"), config)?)
    }

    fn certify(&self) -> Result<(), RegistryError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let ca = params.self_signed(&key)?;
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate()?;
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        let server = server.signed_by(&key, &issuer)?;
        write(&self.ca(), ca.pem())?;
        write(&self.path("tls.crt"), server.pem())?;
        write(&self.path("tls.key"), key.serialize_pem())?;
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}
