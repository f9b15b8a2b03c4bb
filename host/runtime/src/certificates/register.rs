//! Tells the API server of the webhooks' authority, and whose the webhook configurations are.

use ipu_api::names::FIELD_MANAGER;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{ClusterResourceScope, Resource};
use kube::{Client, Error, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::info;

use super::bundle::{self, WebhookBundle};
use super::owner;

/// Why the API server does not know the authority, or the configurations have no owner.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// A webhook configuration cannot be read or written.
    #[error("failed to put the CA into the {kind} {name}")]
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

/// The webhook configurations of a release.
#[derive(Clone)]
pub struct Registration {
    /// Client for them.
    pub client: Client,
    /// Namespace of the release.
    pub namespace: String,
    /// Name of both webhook configurations.
    pub configuration: String,
    /// Whether the operator writes the caBundles, and not cert-manager or an admin.
    pub tells: bool,
}

impl Registration {
    /// Makes `authorities` the caBundle of every webhook of both configurations. It is asked again
    /// and again, because a `helm upgrade` or an admin may have blanked them. Where somebody else
    /// writes them, nothing is done.
    pub async fn tell(&self, authorities: &str) -> Result<(), RegisterError> {
        if !self.tells {
            return Ok(());
        }
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
    pub async fn own(&self) -> Result<(), RegisterError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = namespaces.get(&self.namespace).await;
        let namespace = namespace.map_err(|source| RegisterError::Namespace {
            name: self.namespace.clone(),
            source: Box::new(source),
        })?;
        let uid = namespace.uid().unwrap_or_default();
        self.own_one::<MutatingWebhookConfiguration>(&uid).await?;
        self.own_one::<ValidatingWebhookConfiguration>(&uid).await
    }

    async fn own_one<K: Configuration>(&self, uid: &str) -> Result<(), RegisterError> {
        let failed = |source| RegisterError::Owner {
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
    ) -> Result<(), RegisterError> {
        let failed = |source| RegisterError::Configuration {
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
