//! Renews the certificate in a Secret before it expires, and issues the first one. The I/O around
//! the decisions of `validity`.

use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::requests;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, Error};
use tracing::{info, warn};

use super::issue::IssueError;
use super::validity::{Action, Stored, decide};
use super::{CertificateBundle, Source, issue, secret, service_names};

/// Most attempts after conflicting writes of the Secret.
const ATTEMPTS: usize = 5;

/// Reason for the lack of a valid certificate.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The Secret cannot be read or written.
    #[error("failed to {action} the Secret {name}")]
    Request {
        /// The failed action.
        action: &'static str,
        /// Name of the Secret.
        name: String,
        /// The cause.
        #[source]
        source: Box<Error>,
    },
    /// The operator does not own the Secret, and its certificate is invalid.
    #[error(
        "failed to use the Secret {name}: {why}. The operator did not make it, so it does not \
         replace it: put a good certificate into it, or delete it and the operator makes one"
    )]
    Foreign {
        /// Name of the Secret.
        name: String,
        /// The reason.
        why: String,
    },
    /// An admin or cert-manager must provide the certificate, and there is no valid one.
    #[error(
        "failed to use the Secret {name}: {why}. The chart's value certificates.source leaves it to \
         you or to cert-manager: put tls.crt, tls.key and ca.crt into it, or see with `kubectl \
         describe certificate` why cert-manager does not"
    )]
    NotProvided {
        /// Name of the Secret.
        name: String,
        /// The reason.
        why: String,
    },
    /// The process `ipu-operator certificates` must issue the certificate, and there is no valid
    /// one.
    #[error(
        "failed to use the Secret {name}: {why}. The process `ipu-operator certificates` issues the \
         certificate: its log says why it does not"
    )]
    NotIssued {
        /// Name of the Secret.
        name: String,
        /// The reason.
        why: String,
    },
    /// Every write conflicted with another replica.
    #[error("failed to agree with other replicas on the Secret {0}")]
    Conflict(String),
    /// The certificate cannot be issued.
    #[error("failed to make the certificate for the Secret {0}")]
    Issue(String, #[source] IssueError),
}

/// The manager of one certificate.
#[derive(Clone)]
pub struct CertificateManager {
    /// Client for the Secret.
    pub client: Client,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Names of the certificate.
    pub names: Vec<String>,
    /// Issuer of the certificate.
    pub source: Source,
}

impl CertificateManager {
    /// The manager of the certificate of a Service of this release, in this Secret.
    pub fn of_release(
        client: Client,
        release: &ReleaseOptions,
        service: &str,
        secret: String,
        source: Source,
    ) -> Self {
        let domain = &release.cluster_domain;
        Self {
            client,
            namespace: release.namespace.clone(),
            secret,
            names: service_names(source, service, &release.namespace, domain),
            source,
        }
    }

    /// Returns the certificate in the Secret if it is valid. Otherwise issues a new one and stores
    /// it. If two replicas start together, one writes the Secret and the other reads it. `now` is
    /// called after the API server has answered, because its answers correct the clock.
    pub async fn ensure(
        &self,
        now: impl Fn() -> Timestamp,
    ) -> Result<CertificateBundle, ManagerError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        for _ in 0..ATTEMPTS {
            let seen = secrets.get_opt(&self.secret).await;
            let seen = seen.map_err(|source| ManagerError::Request {
                action: "read",
                name: self.secret.clone(),
                source: Box::new(source),
            })?;
            let stored = secret::read(seen.as_ref(), self.source);
            let Some(bundle) = self.renew(&stored, now())? else {
                if let Stored::Complete { bundle, .. } = stored {
                    return Ok(bundle);
                }
                continue;
            };
            if self.store(&secrets, &bundle, seen.as_ref()).await? {
                return Ok(bundle);
            }
        }
        Err(ManagerError::Conflict(self.secret.clone()))
    }

    /// Issues a new certificate, if one is needed.
    fn renew(
        &self,
        stored: &Stored,
        now: Timestamp,
    ) -> Result<Option<CertificateBundle>, ManagerError> {
        let issued = match (decide(stored, &self.names, now), stored) {
            (Action::Keep, _) => return Ok(None),
            (Action::Warn(why), _) => {
                self.warn_of_end(&why);
                return Ok(None);
            }
            (Action::Refuse(why), _) => return Err(self.refused(why)),
            (Action::Renew(why), Stored::Complete { bundle, .. }) => {
                info!(secret = self.secret, "renewing the certificate: {why}");
                issue::renew(bundle, &self.names, now)
            }
            (Action::Renew(why) | Action::Issue(why), _) => {
                info!(secret = self.secret, "making a certificate: {why}");
                issue::issue(&self.names, now)
            }
        };
        issued
            .map(Some)
            .map_err(|source| ManagerError::Issue(self.secret.clone(), source))
    }

    /// Logs that nobody has renewed a certificate that this process does not own.
    fn warn_of_end(&self, why: &str) {
        let secret = &self.secret;
        match self.source {
            Source::Made | Source::Given => {
                warn!(secret, "the given certificate needs renewal: {why}");
            }
            Source::Issued => warn!(
                secret,
                "the process of the certificates has not renewed this one: {why}"
            ),
        }
    }

    fn refused(&self, why: String) -> ManagerError {
        let name = self.secret.clone();
        match self.source {
            Source::Made => ManagerError::Foreign { name, why },
            Source::Given => ManagerError::NotProvided { name, why },
            Source::Issued => ManagerError::NotIssued { name, why },
        }
    }

    /// Writes the Secret. Returns `false` on a conflict.
    async fn store(
        &self,
        secrets: &Api<Secret>,
        bundle: &CertificateBundle,
        seen: Option<&Secret>,
    ) -> Result<bool, ManagerError> {
        let secret = secret::build(&self.secret, &self.namespace, bundle, seen);
        let params = requests::post();
        let written = if seen.is_some() {
            secrets.replace(&self.secret, &params, &secret).await
        } else {
            secrets.create(&params, &secret).await
        };
        match written {
            Ok(_) => Ok(true),
            // 409: created or changed since the read; 404: deleted since the read.
            Err(Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(false),
            Err(source) => Err(ManagerError::Request {
                action: "write",
                name: self.secret.clone(),
                source: Box::new(source),
            }),
        }
    }
}
