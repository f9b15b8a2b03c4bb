//! Keeps a certificate good in its Secret: the I/O around the decisions.

use ipu_api::names::FIELD_MANAGER;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tracing::{info, warn};

use super::decide::{Need, Stored, decide};
use super::issue::IssueError;
use super::{Keys, Source, issue, secret};

/// How often a lost race for the Secret is run again.
const RACES: usize = 5;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The Secret cannot be read.
    #[error("failed to read the Secret {name}")]
    Read {
        /// Name of the Secret.
        name: String,
        /// Why.
        #[source]
        source: Box<Error>,
    },
    /// The Secret cannot be written.
    #[error("failed to write the Secret {name}")]
    Write {
        /// Name of the Secret.
        name: String,
        /// Why.
        #[source]
        source: Box<Error>,
    },
    /// The Secret is somebody else's, and what it holds cannot serve.
    #[error(
        "failed to use the Secret {name}: {why}. The operator did not make it, so it does not \
         replace it: put a good certificate into it, or delete it and the operator makes one"
    )]
    Foreign {
        /// Name of the Secret.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The certificate is to be given, and none that can serve is there.
    #[error(
        "failed to use the Secret {name}: {why}. The chart's value certificates.source leaves it to \
         you or to cert-manager: put tls.crt, tls.key and ca.crt into it, or see with `kubectl \
         describe certificate` why cert-manager does not"
    )]
    Given {
        /// Name of the Secret.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Other replicas were always quicker, and what they wrote was never good.
    #[error("failed to agree with other replicas on the Secret {name}")]
    Races {
        /// Name of the Secret.
        name: String,
    },
    /// No certificate can be made.
    #[error("failed to make the certificate for the Secret {name}")]
    Issue {
        /// Name of the Secret.
        name: String,
        /// Why.
        #[source]
        source: IssueError,
    },
}

/// Where a certificate is kept.
#[derive(Clone)]
pub struct Keeper {
    /// Client for the Secret.
    pub client: Client,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Names that the certificate is for.
    pub names: Vec<String>,
    /// Who makes it.
    pub source: Source,
}

impl Keeper {
    /// The certificate to serve with: what the Secret holds where that is good, else a new one,
    /// which is stored first. Of two replicas that start together one writes the Secret, and the
    /// other reads what it wrote. What time it is, is asked once the API server has answered: it
    /// knows best.
    pub async fn keys(&self, now: impl Fn() -> Timestamp) -> Result<Keys, KeepError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        for _ in 0..RACES {
            let seen = secrets.get_opt(&self.secret).await;
            let seen = seen.map_err(|source| KeepError::Read {
                name: self.secret.clone(),
                source: Box::new(source),
            })?;
            let stored = secret::read(seen.as_ref(), self.source);
            let Some(keys) = self.renewed(&stored, now())? else {
                if let Stored::Keys { keys, .. } = stored {
                    return Ok(keys);
                }
                continue;
            };
            if self.store(&secrets, &keys, seen.as_ref()).await? {
                return Ok(keys);
            }
        }
        Err(KeepError::Races {
            name: self.secret.clone(),
        })
    }

    /// New keys, where new ones are needed.
    fn renewed(&self, stored: &Stored, now: Timestamp) -> Result<Option<Keys>, KeepError> {
        let made = match (decide(stored, &self.names, now), stored) {
            (Need::Nothing, _) => return Ok(None),
            (Need::Warn(why), _) => {
                warn!(
                    secret = self.secret,
                    "the given certificate needs renewal: {why}"
                );
                return Ok(None);
            }
            (Need::Refuse(why), _) => return Err(self.refused(why)),
            (Need::Renew(why), Stored::Keys { keys, .. }) => {
                info!(secret = self.secret, "renewing the certificate: {why}");
                issue::renew(keys, &self.names, now)
            }
            (Need::Renew(why) | Need::Start(why), _) => {
                info!(secret = self.secret, "making a certificate: {why}");
                issue::start(&self.names, now)
            }
        };
        made.map(Some).map_err(|source| KeepError::Issue {
            name: self.secret.clone(),
            source,
        })
    }

    fn refused(&self, why: String) -> KeepError {
        let name = self.secret.clone();
        match self.source {
            Source::Made => KeepError::Foreign { name, why },
            Source::Given => KeepError::Given { name, why },
        }
    }

    /// Writes the Secret; answers whether nobody else was quicker.
    async fn store(
        &self,
        secrets: &Api<Secret>,
        keys: &Keys,
        seen: Option<&Secret>,
    ) -> Result<bool, KeepError> {
        let secret = secret::build(&self.secret, &self.namespace, keys, seen);
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let written = if seen.is_some() {
            secrets.replace(&self.secret, &params, &secret).await
        } else {
            secrets.create(&params, &secret).await
        };
        match written {
            Ok(_) => Ok(true),
            // 409: made or changed since it was read; 404: deleted since.
            Err(Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(false),
            Err(source) => Err(KeepError::Write {
                name: self.secret.clone(),
                source: Box::new(source),
            }),
        }
    }
}
