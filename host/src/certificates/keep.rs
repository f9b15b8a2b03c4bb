//! Keeps the certificate good and the API server informed: the I/O around the decisions.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{ClusterResourceScope, Resource};
use kube::{Client, Error, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};

use super::bundle::{self, WebhookBundle};
use super::decide::{Need, Stored, decide};
use super::issue::IssueError;
use super::{Keys, issue, owner, secret};
use crate::names::FIELD_MANAGER;

/// How often a lost race for the Secret is run again.
const RACES: usize = 5;

/// Why there is no certificate, or the API server does not know its authority.
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
    /// Other replicas were always quicker, and what they wrote was never good.
    #[error("failed to agree with other replicas on the Secret {name}")]
    Races {
        /// Name of the Secret.
        name: String,
    },
    /// No certificate can be made.
    #[error("failed to make the webhooks' certificate")]
    Issue(#[source] IssueError),
    /// A webhook configuration cannot be read or written.
    #[error("failed to put the authority into the {kind} {name}")]
    Configuration {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: Box<Error>,
    },
    /// The release's Namespace cannot be read.
    #[error("failed to read the Namespace {name}, which is to own the webhook configurations")]
    Namespace {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: Box<Error>,
    },
    /// A webhook configuration cannot be read, or cannot be given an owner.
    #[error(
        "failed to make the Namespace {namespace} the owner of the {kind} {name}; without one, \
         delete that by hand when you delete the Namespace"
    )]
    Owner {
        /// The Namespace.
        namespace: String,
        /// Kind of the configuration.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: Box<Error>,
    },
}

/// Where the certificate is kept, and who must know of it.
#[derive(Clone)]
pub struct Keeper {
    /// Client for all of it.
    pub client: Client,
    /// Namespace of the Secret, and of the release.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of both webhook configurations.
    pub configuration: String,
    /// Names that the certificate is for.
    pub names: Vec<String>,
}

impl Keeper {
    /// The certificate to serve with: what the Secret holds where that is good, else a new one,
    /// which is stored first. Of two replicas that start together one writes the Secret, and the
    /// other reads what it wrote.
    pub async fn keys(&self, now: Timestamp) -> Result<Keys, KeepError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        for _ in 0..RACES {
            let seen = secrets.get_opt(&self.secret).await;
            let seen = seen.map_err(|source| KeepError::Read {
                name: self.secret.clone(),
                source: Box::new(source),
            })?;
            let stored = secret::read(seen.as_ref());
            let Some(keys) = self.renewed(&stored, now)? else {
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
            (Need::Refuse(why), _) => {
                return Err(KeepError::Foreign {
                    name: self.secret.clone(),
                    why,
                });
            }
            (Need::Renew(why), Stored::Keys { keys, .. }) => {
                info!(
                    secret = self.secret,
                    "renewing the webhooks' certificate: {why}"
                );
                issue::renew(keys, &self.names, now)
            }
            (Need::Renew(why) | Need::Start(why), _) => {
                info!(
                    secret = self.secret,
                    "making the webhooks' certificate: {why}"
                );
                issue::start(&self.names, now)
            }
        };
        made.map(Some).map_err(KeepError::Issue)
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

    /// Makes `authorities` the caBundle of every webhook of both configurations. It is asked again
    /// and again, because a `helm upgrade` or an admin may have blanked them.
    pub async fn tell(&self, authorities: &str) -> Result<(), KeepError> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        self.tell_one(&mutating, authorities, |configuration| {
            let webhooks = configuration.webhooks.iter().flatten();
            webhooks.map(|w| seen(&w.name, &w.client_config)).collect()
        })
        .await?;
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        self.tell_one(&validating, authorities, |configuration| {
            let webhooks = configuration.webhooks.iter().flatten();
            webhooks.map(|w| seen(&w.name, &w.client_config)).collect()
        })
        .await
    }

    /// Makes the release's Namespace the owner of both configurations. The chart cannot: where
    /// Helm makes the Namespace, it has no UID yet when the chart is rendered. Without an owner,
    /// webhooks that nobody answers would stay behind when the Namespace is deleted.
    pub async fn own(&self) -> Result<(), KeepError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = namespaces.get(&self.namespace).await;
        let namespace = namespace.map_err(|source| KeepError::Namespace {
            name: self.namespace.clone(),
            source: Box::new(source),
        })?;
        let uid = namespace.uid().unwrap_or_default();
        self.own_one::<MutatingWebhookConfiguration>(&uid).await?;
        self.own_one::<ValidatingWebhookConfiguration>(&uid).await
    }

    async fn own_one<K: Configuration>(&self, uid: &str) -> Result<(), KeepError> {
        let failed = |source| KeepError::Owner {
            namespace: self.namespace.clone(),
            kind: K::kind(&()).into_owned(),
            name: self.configuration.clone(),
            source: Box::new(source),
        };
        let configurations: Api<K> = Api::all(self.client.clone());
        let found = configurations.get(&self.configuration).await;
        let found = found.map_err(failed)?;
        let Some(patch) = owner::patch(found.meta(), &self.namespace, uid) else {
            return Ok(());
        };
        self.patch(&configurations, patch).await.map_err(failed)?;
        info!(
            configuration = self.configuration,
            kind = %K::kind(&()),
            namespace = self.namespace,
            "made the Namespace the owner of the webhook configuration"
        );
        Ok(())
    }

    async fn tell_one<K: Configuration>(
        &self,
        configurations: &Api<K>,
        authorities: &str,
        webhooks: impl Fn(&K) -> Vec<WebhookBundle<'_>>,
    ) -> Result<(), KeepError> {
        let failed = |source| KeepError::Configuration {
            kind: K::kind(&()).into_owned(),
            name: self.configuration.clone(),
            source: Box::new(source),
        };
        let found = configurations
            .get(&self.configuration)
            .await
            .map_err(failed)?;
        let Some(patch) = bundle::patch(&webhooks(&found), authorities) else {
            return Ok(());
        };
        self.patch(configurations, patch).await.map_err(failed)?;
        info!(
            configuration = self.configuration,
            kind = %K::kind(&()),
            "put the authority into the webhook configuration"
        );
        Ok(())
    }

    async fn patch<K: Configuration>(
        &self,
        configurations: &Api<K>,
        patch: Value,
    ) -> Result<(), Error> {
        let patch: json_patch::Patch =
            serde_json::from_value(patch).expect("the patch is written as RFC 6902 has it");
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::<K>::Json(patch);
        let patched = configurations.patch(&self.configuration, &params, &patch);
        patched.await.map(drop)
    }
}

/// What both kinds of webhook configurations have in common.
trait Configuration:
    Resource<DynamicType = (), Scope = ClusterResourceScope>
    + Clone
    + Serialize
    + DeserializeOwned
    + std::fmt::Debug
{
}

impl Configuration for MutatingWebhookConfiguration {}

impl Configuration for ValidatingWebhookConfiguration {}

fn seen<'a>(name: &'a str, config: &'a WebhookClientConfig) -> WebhookBundle<'a> {
    WebhookBundle {
        name,
        bundle: config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()),
    }
}
