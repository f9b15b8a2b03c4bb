//! Sets the caBundles and the owner of the webhook configurations.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch};
use kube::core::{ClusterResourceScope, Resource};
use kube::{Client, Error, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::info;

use super::ca_bundle::{self, WebhookBundle};
use super::owner;
use crate::requests;

/// Failure to set the caBundles or the owner.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A webhook configuration cannot be read or written.
    #[error("failed to put the CA into the {kind} {name}")]
    Configuration {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Box<Error>,
    },
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

/// The webhook configurations of a release.
#[derive(Clone)]
pub struct Registration {
    /// Client for them.
    pub client: Client,
    /// Namespace of the release.
    pub namespace: String,
    /// Name of both webhook configurations.
    pub configuration: String,
    /// Whether the operator writes the caBundles; otherwise cert-manager or an admin does.
    pub manages_ca_bundles: bool,
    /// Whether the Namespace of the release is made their owner.
    pub manages_owners: bool,
}

impl Registration {
    /// Sets the caBundle of every webhook of both configurations to `ca_pem`, unless the operator does not manage them.
    /// The caller repeats it, because a `helm upgrade` or an admin can reset them.
    pub async fn set_ca_bundles(&self, ca_pem: &str) -> Result<(), RegistrationError> {
        if !self.manages_ca_bundles {
            return Ok(());
        }
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        self.set_ca_bundle(&mutating, ca_pem, |configuration| {
            let webhooks = configuration.webhooks.iter().flatten();
            webhooks
                .map(|w| webhook_bundle(&w.name, &w.client_config))
                .collect()
        })
        .await?;
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        self.set_ca_bundle(&validating, ca_pem, |configuration| {
            let webhooks = configuration.webhooks.iter().flatten();
            webhooks
                .map(|w| webhook_bundle(&w.name, &w.client_config))
                .collect()
        })
        .await
    }

    /// Makes the Namespace of the release the owner of both configurations, unless the operator does not manage it. The chart cannot, because a Namespace that
    /// Helm creates has no UID during rendering. Without an owner, the webhooks would outlive the Namespace and block
    /// requests.
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
        info!(
            configuration = self.configuration,
            kind = %K::kind(&()),
            namespace = self.namespace,
            "made the Namespace the owner of the webhook configuration"
        );
        Ok(())
    }

    async fn set_ca_bundle<K: Configuration>(
        &self,
        configurations: &Api<K>,
        ca_pem: &str,
        webhooks: impl Fn(&K) -> Vec<WebhookBundle<'_>>,
    ) -> Result<(), RegistrationError> {
        let failed = |source| RegistrationError::Configuration {
            kind: K::kind(&()).into_owned(),
            name: self.configuration.clone(),
            source: Box::new(source),
        };
        let found = configurations
            .get(&self.configuration)
            .await
            .map_err(failed)?;
        let Some(patch) = ca_bundle::patch(&webhooks(&found), ca_pem) else {
            return Ok(());
        };
        self.patch(configurations, patch).await.map_err(failed)?;
        info!(
            configuration = self.configuration,
            kind = %K::kind(&()),
            "put the CA into the webhook configuration"
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
        let (params, patch) = (requests::patch(), Patch::<K>::Json(patch));
        let patched = configurations.patch(&self.configuration, &params, &patch);
        patched.await.map(drop)
    }
}

/// The common interface of both kinds of webhook configurations.
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

fn webhook_bundle<'a>(name: &'a str, config: &'a WebhookClientConfig) -> WebhookBundle<'a> {
    WebhookBundle {
        name,
        bundle: config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()),
    }
}
