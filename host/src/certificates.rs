//! The process that issues and renews the certificates of a release, and registers the CA of its
//! webhooks.
//!
//! It alone may write the Secrets of certificates and change the webhook configurations. With these
//! rights, a process can read and change every object of the cluster. Therefore it has no port,
//! calls no guest, and reads no object of a user. One replica without a Lease is sufficient: a
//! certificate is valid for a year, and this process renews it 30 days before its end. Meanwhile
//! servers need only the Secrets.

use std::time::{Duration, Instant};

use clap::{ArgAction, Args};
use ipu_ports::certificates::Source;
use ipu_ports::certificates::ca_bundle::Trust;
use ipu_ports::certificates::registration::{CaBundles, Registration, RegistrationError};
use ipu_ports::certificates::renewal::CertificateManager;
use ipu_ports::certificates::serving::{self, CHECK_PERIOD, RETRY_DELAY, ServingError};
use ipu_runtime::api_client::ApiCalls;
use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::telemetry::LogArguments;
use ipu_text::explain;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{exposition, proxy, shutdown};

/// Name of the subcommand.
pub const NAME: &str = "certificates";

/// Time for which the previous CA remains in the caBundles. Servers read the new certificate within
/// a period and the timeouts of a round, together 55 seconds; rounds may fail.
const HANDOVER: Duration = Duration::from_mins(5);

/// Options of the process.
#[derive(Args, Clone, Debug)]
pub struct CertificatesOptions {
    /// Options of the log.
    #[command(flatten)]
    pub log: LogArguments,
    /// The release.
    #[command(flatten)]
    pub release: ReleaseOptions,
    /// Name of the webhooks' Service [default: <fullname>-webhook-svc].
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_SERVICE")]
    pub webhook_service: Option<String>,
    /// Name of the Secret with the webhooks' certificate [default: <fullname>-admission].
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_SECRET")]
    pub webhook_secret: Option<String>,
    /// Whether this process issues the certificates; false: an admin does, and this process
    /// registers the CA in the webhooks' Secret.
    #[arg(long, env = "IPU_OPERATOR_ISSUE", action = ArgAction::Set, default_value_t = true)]
    pub issue: bool,
    /// Whether this process makes the Namespace of the release the owner of the webhook
    /// configurations.
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_OWNER", action = ArgAction::Set, default_value_t = true)]
    pub webhook_owner: bool,
}

/// Reason for the end of the process.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// The process cannot listen for a signal.
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),
    /// No client of the API server could be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// A failed check of the certificates.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Certificate(#[from] ServingError),
    #[error("failed to keep the webhooks registered")]
    Register(#[from] RegistrationError),
}

/// Runs until SIGTERM or SIGINT. A write in progress ends with the process: the next start repeats
/// it.
pub async fn run(options: CertificatesOptions) -> Result<(), CertificatesError> {
    let stop = CancellationToken::new();
    shutdown::on_signals(&stop).map_err(CertificatesError::Signals)?;
    let client = ApiCalls::default().client().await;
    let client = client.map_err(|source| CertificatesError::Client(Box::new(source)))?;
    let certificates = Certificates::new(client, &options);
    stop.run_until_cancelled(certificates.maintain()).await;
    info!("the process ends");
    Ok(())
}

/// The certificates of a release, and the registration of its webhooks.
pub struct Certificates {
    webhooks: CertificateManager,
    others: Vec<CertificateManager>,
    registration: Registration,
    handover: Handover,
}

impl Certificates {
    /// The certificates of the release in the options.
    pub fn new(client: Client, options: &CertificatesOptions) -> Self {
        let release = &options.release;
        let source = if options.issue {
            Source::Made
        } else {
            Source::Given
        };
        let named = |name: &Option<String>, suffix: &str| {
            let by_default = || format!("{}{suffix}", release.fullname);
            name.clone().unwrap_or_else(by_default)
        };
        let service = named(&options.webhook_service, "-webhook-svc");
        let secret = named(&options.webhook_secret, "-admission");
        let others = options.issue.then(|| {
            let metrics =
                exposition::endpoint::certificate_manager(client.clone(), release, source);
            [
                metrics,
                proxy::certificate_manager(client.clone(), release, source, None),
            ]
        });
        Self {
            webhooks: CertificateManager::of_release(
                client.clone(),
                release,
                &service,
                secret,
                source,
            ),
            others: others.into_iter().flatten().collect(),
            registration: Registration {
                client,
                namespace: release.namespace.clone(),
                configuration: release.configuration().to_owned(),
                ca_bundles: CaBundles::Written,
                manages_owners: options.webhook_owner,
            },
            handover: Handover::default(),
        }
    }

    /// Maintains the certificates and the caBundles. It never returns.
    pub async fn maintain(mut self) {
        let mut complaint = None;
        loop {
            let mut pause = CHECK_PERIOD;
            for error in self.check().await {
                warn!("{}", explain(&error));
                pause = RETRY_DELAY;
            }
            self.registration.own(&mut complaint).await;
            tokio::time::sleep(pause).await;
        }
    }

    /// Renews the certificates if needed, and registers the CA. One failure prevents no other
    /// certificate.
    async fn check(&mut self) -> Vec<CheckError> {
        let mut errors: Vec<CheckError> = self.check_webhooks().await.err().into_iter().collect();
        for other in &self.others {
            errors.extend(serving::check(other).await.err().map(CheckError::from));
        }
        errors
    }

    /// Renews the certificate of the webhooks if needed, and registers its CA.
    async fn check_webhooks(&mut self) -> Result<(), CheckError> {
        let bundle = serving::check(&self.webhooks).await?;
        let trust = self.handover.trust(&bundle.ca_pem, Instant::now());
        self.registration
            .set_ca_bundles(&bundle.ca_pem, trust)
            .await?;
        self.handover.registered(&bundle.ca_pem, Instant::now());
        Ok(())
    }
}

/// The CA that this process has registered.
#[derive(Debug, Default)]
struct Handover(Option<RegisteredCa>);

#[derive(Debug)]
struct RegisteredCa {
    ca_pem: String,
    since: Instant,
}

impl Handover {
    /// The CAs that belong into the caBundles now. Until all servers use a certificate of a new CA,
    /// the previous one remains.
    fn trust(&self, ca_pem: &str, now: Instant) -> Trust {
        let is_over = |registered: &RegisteredCa| {
            registered.ca_pem == ca_pem && now.duration_since(registered.since) >= HANDOVER
        };
        if self.0.as_ref().is_some_and(is_over) {
            Trust::Only
        } else {
            Trust::WithPrevious
        }
    }

    /// Records that the caBundles contain this CA.
    fn registered(&mut self, ca_pem: &str, now: Instant) {
        if self
            .0
            .as_ref()
            .is_none_or(|registered| registered.ca_pem != ca_pem)
        {
            self.0 = Some(RegisteredCa {
                ca_pem: ca_pem.to_owned(),
                since: now,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_previous_ca_is_trusted_until_servers_have_the_new_certificate() {
        let start = Instant::now();
        let mut handover = Handover::default();
        for ca in ["first", "second"] {
            assert_eq!(handover.trust(ca, start), Trust::WithPrevious);
            handover.registered(ca, start);
            let early = start + HANDOVER / 2;
            assert_eq!(handover.trust(ca, early), Trust::WithPrevious);
            // Each check registers it again.
            handover.registered(ca, early);
            assert_eq!(handover.trust(ca, start + HANDOVER), Trust::Only);
        }
    }
}
