//! The process that issues certificates, and the processes that read them, each with the rights
//! that the chart grants.

use cluster::kubeconfig;
use cluster::wait::{Seen, eventually};
use ipu_operator::certificates::{Certificates, CertificatesOptions};
use ipu_operator::{exposition, proxy};
use ipu_ports::certificates::registration::{CaBundles, Registration};
use ipu_ports::certificates::renewal::CertificateManager;
use ipu_ports::certificates::{CertificateBundle, Source};
use ipu_runtime::clock;
use ipu_runtime::release::ReleaseOptions;
use ipu_text::explain;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams};
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;

use super::admin::Admin;
use super::arguments::certificates_options;

/// A release whose processes do not run.
struct Release {
    admin: Admin,
    options: CertificatesOptions,
}

impl Release {
    async fn install(name: &'static str, values: &[&str]) -> Self {
        let admin = Admin::new(name).await;
        admin.helm_upgrade(values);
        let mut options = certificates_options(None);
        options.release = ReleaseOptions {
            namespace: name.to_owned(),
            fullname: name.to_owned(),
            ..ReleaseOptions::default()
        };
        options.webhook_service = None;
        options.webhook_secret = None;
        Self { admin, options }
    }

    /// A client with the rights of the admin.
    async fn client(&self) -> Client {
        kubeconfig::client(&self.admin.kubeconfig).await.unwrap()
    }

    /// A client with the rights of one of the processes.
    async fn client_of(&self, process: &str) -> Client {
        let mut config = kubeconfig::config(&self.admin.kubeconfig).await.unwrap();
        let name = self.admin.name;
        let account = format!("system:serviceaccount:{name}:{name}-{process}");
        config.auth_info.impersonate = Some(account);
        Client::try_from(config).unwrap()
    }

    /// Starts the process.
    async fn start(&self) -> JoinHandle<()> {
        let client = self.client_of("certificates").await;
        let certificates = Certificates::new(client, &self.options);
        tokio::spawn(certificates.maintain())
    }

    /// The certificate of the webhooks, as a process with this client sees it.
    fn webhooks(&self, client: Client, source: Source) -> CertificateManager {
        let name = self.admin.name;
        let (service, secret) = (format!("{name}-webhook-svc"), format!("{name}-admission"));
        let release = &self.options.release;
        CertificateManager::of_release(client, release, &service, secret, source)
    }

    /// The registration that the controller waits for.
    fn awaited(&self, client: Client) -> Registration {
        Registration {
            client,
            namespace: self.admin.name.to_owned(),
            configuration: self.admin.name.to_owned(),
            ca_bundles: CaBundles::Awaited,
            manages_owners: false,
        }
    }

    /// Waits until the controller has a certificate whose CA is registered.
    async fn served(&self, source: Source) -> CertificateBundle {
        let client = self.client_of("controller-manager").await;
        let manager = self.webhooks(client.clone(), source);
        let registration = self.awaited(client);
        eventually("the controller can serve", async || {
            let bundle = match manager.ensure(clock::now).await {
                Ok(bundle) => bundle,
                Err(error) => return Seen::NotYet(explain(&error)),
            };
            match registration.ensure_ca_bundles(&bundle.ca_pem).await {
                Ok(()) => Seen::Yes(bundle),
                Err(error) => Seen::NotYet(explain(&error)),
            }
        })
        .await
    }

    /// The caBundles of both configurations.
    async fn ca_bundles(&self) -> Vec<String> {
        let client = self.client().await;
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let mutating = mutating.get(self.admin.name).await.unwrap().webhooks;
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client);
        let validating = validating.get(self.admin.name).await.unwrap().webhooks;
        let mutating = mutating.into_iter().flatten();
        let validating = validating.into_iter().flatten();
        let configs = mutating.map(|webhook| webhook.client_config);
        let configs = configs.chain(validating.map(|webhook| webhook.client_config));
        let bundles = configs.map(|config| config.ca_bundle.unwrap_or_default().0);
        bundles
            .map(|bundle| String::from_utf8(bundle).unwrap())
            .collect()
    }
}

#[tokio::test]
async fn every_process_has_a_certificate_with_its_own_rights() {
    let release = Release::install("chart-issuer", &[]).await;
    let controller = release.client_of("controller-manager").await;
    let missing = release.webhooks(controller.clone(), Source::Issued);
    let missing = explain(&missing.ensure(clock::now).await.unwrap_err());
    assert!(missing.contains("`ipu-operator certificates`"), "{missing}");
    let registration = release.awaited(controller.clone());
    let missing = registration.ensure_ca_bundles("a CA").await.unwrap_err();
    let missing = explain(&missing);
    assert!(missing.contains("`ipu-operator certificates`"), "{missing}");

    let process = release.start().await;
    let bundle = release.served(Source::Issued).await;
    let bundles = release.ca_bundles().await;
    assert!(
        bundles
            .iter()
            .all(|registered| *registered == bundle.ca_pem)
    );
    let (options, proxy_client) = (
        &release.options.release,
        release.client_of("vipu-proxy").await,
    );
    let metrics = exposition::endpoint::certificate_manager(controller, options, Source::Issued);
    let rest = proxy::certificate_manager(proxy_client, options, Source::Issued, None);
    for manager in [metrics, rest] {
        eventually("the certificate is issued", async || {
            match manager.ensure(clock::now).await {
                Ok(_) => Seen::Yes(()),
                Err(error) => Seen::NotYet(explain(&error)),
            }
        })
        .await;
    }
    check_owners(&release).await;
    process.abort();
}

/// Waits until the release's Namespace owns both configurations.
async fn check_owners(release: &Release) {
    let (name, client) = (release.admin.name, release.client().await);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let uid = namespaces.get(name).await.unwrap().uid().unwrap();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client);
    eventually("the Namespace owns both configurations", async || {
        let mutating = mutating.get(name).await.unwrap();
        let validating = validating.get(name).await.unwrap();
        let owners = [mutating.owner_references(), validating.owner_references()];
        let uids = owners.map(|owners| owners.first().map(|owner| owner.uid.clone()));
        Seen::when(uids, |uids| {
            uids.iter().all(|found| found.as_ref() == Some(&uid))
        })
    })
    .await;
}

#[tokio::test]
async fn an_upgrade_keeps_the_certificate_and_a_new_ca_joins_the_old_one() {
    let release = Release::install("chart-issuer-upgrade", &[]).await;
    // The controller of 0.1.0 wrote the Secret.
    let earlier = release.webhooks(release.client().await, Source::Made);
    let earlier = earlier.ensure(clock::now).await.unwrap();
    let process = release.start().await;
    let bundle = release.served(Source::Issued).await;
    assert!(
        bundle == earlier,
        "the process has replaced the certificate"
    );
    process.abort();

    let secrets: Api<Secret> = Api::namespaced(release.client().await, release.admin.name);
    let secret = format!("{}-admission", release.admin.name);
    let params = DeleteParams::default();
    secrets.delete(&secret, &params).await.unwrap();
    let process = release.start().await;
    let renewed = release.served(Source::Issued).await;
    assert!(renewed.ca_pem != earlier.ca_pem);
    // Controllers that have not read the new certificate yet still answer.
    for registered in release.ca_bundles().await {
        assert_eq!(registered, format!("{}{}", renewed.ca_pem, earlier.ca_pem));
    }
    process.abort();
}

#[tokio::test]
async fn the_ca_of_a_given_certificate_is_registered() {
    let values = ["--set", "certificates.source=given"];
    let mut release = Release::install("chart-issuer-given", &values).await;
    release.options.issue = false;
    let given = release.webhooks(release.client().await, Source::Made);
    let given = given.ensure(clock::now).await.unwrap();
    let process = release.start().await;
    let served = release.served(Source::Given).await;
    assert!(served == given, "the process has replaced the certificate");
    process.abort();
}
