//! Sets the caBundles and the owner of the webhook configurations, or waits until another process
//! has set the caBundles.

use ipu_text::explain;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, Patch};
use kube::core::{ClusterResourceScope, Resource};
use kube::{Client, Error, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};

use super::ca_bundle::{self, Trust, WebhookBundle};
use super::owner;
use super::serving::CHECK_TIMEOUT;
use ipu_runtime::requests;

/// Failure to set the caBundles or the owner.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A webhook configuration cannot be read or written.
    #[error("failed to put the CA into the {kind} {name}, or to find it there")]
    Configuration {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Box<Error>,
    },
    /// Another process has not written the CA yet.
    #[error(
        "failed to find the CA in the {kind} {name}: `ipu-operator certificates` writes it there, and its log says why \
         it does not"
    )]
    NotRegistered {
        /// Kind of the configuration.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The API server did not answer in time.
    #[error(
        "failed to read or change the webhook configurations: the API server did not answer in time"
    )]
    Late,
    /// The release's Namespace cannot be read.
    #[error("failed to read the Namespace {0}, the owner of the webhook configurations")]
    Namespace(String, #[source] Box<Error>),
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
        /// The cause.
        #[source]
        source: Box<Error>,
    },
}

/// The writer of the caBundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CaBundles {
    /// This process.
    #[default]
    #[value(name = "true")]
    Written,
    /// cert-manager or an admin.
    #[value(name = "false")]
    Foreign,
    /// The process `ipu-operator certificates`. This process waits for it.
    #[value(name = "await")]
    Awaited,
}

/// The webhook configurations of a release.
#[derive(Clone)]
pub struct Registration {
    /// Client for them.
    pub client: Client,
    /// Namespace of the release.
    pub namespace: String,
    /// Name of both webhook configurations.
    pub configuration: String,
    /// The writer of the caBundles.
    pub ca_bundles: CaBundles,
    /// Whether the Namespace of the release is made their owner.
    pub manages_owners: bool,
}

impl Registration {
    /// Returns when every caBundle contains `ca_pem`, and fails while another process has not
    /// written it. The caller repeats it, because a `helm upgrade` or an admin can reset the
    /// caBundles.
    pub async fn ensure_ca_bundles(&self, ca_pem: &str) -> Result<(), RegistrationError> {
        match self.ca_bundles {
            CaBundles::Written => self.set_ca_bundles(ca_pem, Trust::Only).await,
            CaBundles::Foreign => Ok(()),
            CaBundles::Awaited => in_time(self.find_ca(ca_pem)).await,
        }
    }

    /// Sets the caBundle of every webhook of both configurations.
    ///
    /// The mutating configuration is the last: if it contains the CA, both do.
    pub async fn set_ca_bundles(
        &self,
        ca_pem: &str,
        trust: Trust,
    ) -> Result<(), RegistrationError> {
        in_time(async {
            self.set_ca_bundle::<ValidatingWebhookConfiguration>(ca_pem, trust)
                .await?;
            self.set_ca_bundle::<MutatingWebhookConfiguration>(ca_pem, trust)
                .await
        })
        .await
    }

    /// Sets the owners. The webhooks work without one: if the operator lacks the right, it logs
    /// this once and continues. `said` is the last complaint.
    pub async fn own(&self, said: &mut Option<String>) {
        let owned = in_time(self.set_owners()).await;
        let complaint = owned.err().map(|error| explain(&error));
        if let Some(complaint) = &complaint
            && said.as_ref() != Some(complaint)
        {
            warn!("{complaint}");
        }
        *said = complaint;
    }

    /// Finds the CA in the mutating configuration. The controller may list these, because it looks
    /// for other releases.
    async fn find_ca(&self, ca_pem: &str) -> Result<(), RegistrationError> {
        type Kind = MutatingWebhookConfiguration;
        let configurations: Api<Kind> = Api::all(self.client.clone());
        let named = format!("metadata.name={}", self.configuration);
        let named = ListParams::default().fields(&named);
        let found = configurations.list(&named).await;
        let found = found.map_err(|error| self.failed::<Kind>(error))?;
        let is_registered = found.items.first().is_some_and(|configuration| {
            let webhooks = configuration.webhook_bundles();
            webhooks.iter().all(|webhook| webhook.contains(ca_pem))
        });
        if is_registered {
            return Ok(());
        }
        Err(RegistrationError::NotRegistered {
            kind: Kind::kind(&()).into_owned(),
            name: self.configuration.clone(),
        })
    }

    /// Makes the Namespace of the release the owner of both configurations, unless the operator
    /// does not manage it, or Argo CD applies them ([`owner::patch`]). The chart cannot, because a
    /// Namespace that Helm creates has no UID during rendering. Without an owner, the webhooks
    /// would outlive the Namespace and block requests.
    pub async fn set_owners(&self) -> Result<(), RegistrationError> {
        if !self.manages_owners {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = namespaces.get(&self.namespace).await;
        let namespace = namespace.map_err(|source| {
            RegistrationError::Namespace(self.namespace.clone(), Box::new(source))
        })?;
        let uid = namespace.uid().unwrap_or_default();
        self.set_owner::<MutatingWebhookConfiguration>(&uid).await?;
        self.set_owner::<ValidatingWebhookConfiguration>(&uid).await
    }

    async fn set_owner<K: Configuration>(&self, uid: &str) -> Result<(), RegistrationError> {
        let failed = |source| RegistrationError::Owner {
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
        let done = if owner::is_applied_by_argo_cd(found.meta()) {
            "removed the Namespace from the owners of the webhook configuration, because Argo CD applies it"
        } else {
            "made the Namespace the owner of the webhook configuration"
        };
        info!(
            configuration = self.configuration,
            kind = %K::kind(&()),
            namespace = self.namespace,
            "{done}"
        );
        Ok(())
    }

    async fn set_ca_bundle<K: Configuration>(
        &self,
        ca_pem: &str,
        trust: Trust,
    ) -> Result<(), RegistrationError> {
        let configurations: Api<K> = Api::all(self.client.clone());
        let found = configurations.get(&self.configuration).await;
        let found = found.map_err(|error| self.failed::<K>(error))?;
        let Some(patch) = ca_bundle::patch(&found.webhook_bundles(), ca_pem, trust) else {
            return Ok(());
        };
        let patched = self.patch(&configurations, patch).await;
        patched.map_err(|error| self.failed::<K>(error))?;
        info!(
            configuration = self.configuration,
            kind = %K::kind(&()),
            "put the CA into the webhook configuration"
        );
        Ok(())
    }

    fn failed<K: Configuration>(&self, source: Error) -> RegistrationError {
        RegistrationError::Configuration {
            kind: K::kind(&()).into_owned(),
            name: self.configuration.clone(),
            source: Box::new(source),
        }
    }

    async fn patch<K: Configuration>(
        &self,
        configurations: &Api<K>,
        patch: Value,
    ) -> Result<(), Error> {
        let patch: json_patch::Patch =
            serde_json::from_value(patch).expect("the patch is written as RFC 6902 has it");
        let (params, patch) = (requests::patch(), Patch::<K>::Json(patch));
        let patched = configurations.patch(&self.configuration, &params, &patch);
        patched.await.map(drop)
    }
}

/// Waits for at most the timeout of a check.
async fn in_time(
    requests: impl Future<Output = Result<(), RegistrationError>>,
) -> Result<(), RegistrationError> {
    let ended = tokio::time::timeout(CHECK_TIMEOUT, requests).await;
    ended.unwrap_or(Err(RegistrationError::Late))
}

/// The common interface of both kinds of webhook configurations.
trait Configuration:
    Resource<DynamicType = (), Scope = ClusterResourceScope>
    + Clone
    + Serialize
    + DeserializeOwned
    + std::fmt::Debug
{
    /// The caBundles of its webhooks.
    fn webhook_bundles(&self) -> Vec<WebhookBundle<'_>>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn webhook_bundles(&self) -> Vec<WebhookBundle<'_>> {
        let webhooks = self.webhooks.iter().flatten();
        let bundles = webhooks.map(|webhook| webhook_bundle(&webhook.name, &webhook.client_config));
        bundles.collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn webhook_bundles(&self) -> Vec<WebhookBundle<'_>> {
        let webhooks = self.webhooks.iter().flatten();
        let bundles = webhooks.map(|webhook| webhook_bundle(&webhook.name, &webhook.client_config));
        bundles.collect()
    }
}

fn webhook_bundle<'a>(name: &'a str, config: &'a WebhookClientConfig) -> WebhookBundle<'a> {
    WebhookBundle {
        name,
        bundle: config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()),
    }
}
