//! The command line of `ipu-operator`; every option can also come from the environment.

use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use ipu_authoring::PolicyArgs;
use ipu_jobs::JobSettings;
use ipu_jobs::build::PodSettings;
use ipu_runtime::certificates::Source;
use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::telemetry::LogArguments;

use crate::adopt::AdoptArguments;
use crate::controller::ControllerOptions;
use crate::proxy::ProxyArguments;
use crate::support::SupportOptions;
use crate::verify::VerifyOptions;

/// A Kubernetes operator for Graphcore IPUs.
#[derive(Debug, Parser)]
#[command(name = "ipu-operator", version)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Serve the webhooks and reconcile IPUJobs.
    Controller(ControllerArguments),
    /// Create the requested partitions, and answer users over REST.
    VipuProxy(Box<ProxyArguments>),
    /// Run one small job to its end as a user would, or say what holds it up.
    Verify(VerifyOptions),
    /// Gather what a report of a bug needs, without secrets, into one archive.
    SupportBundle(SupportOptions),
    /// Give jobs that live the partitions that Graphcore's operator made for them.
    Adopt(Box<AdoptArguments>),
    /// Tools for the authors of policies.
    Policy(PolicyArgs),
    /// Print the CustomResourceDefinitions as YAML.
    Crd,
}

/// Options of the controller process.
#[derive(Clone, Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one option of the command line"
)]
pub struct ControllerArguments {
    /// How the log is written.
    #[command(flatten)]
    pub log: LogArguments,
    /// The release.
    #[command(flatten)]
    pub release: ReleaseOptions,
    /// Port of the probes.
    #[arg(long, env = "IPU_OPERATOR_PROBE_PORT", default_value_t = 8081)]
    pub probe_port: u16,
    /// Port of the webhooks.
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_PORT", default_value_t = 9443)]
    pub webhook_port: u16,
    /// Port of the metrics, over TLS.
    #[arg(long, env = "IPU_OPERATOR_METRICS_PORT", default_value_t = 8443)]
    pub metrics_port: u16,
    /// Name of the webhooks' Service [default: <fullname>-webhook-svc].
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_SERVICE")]
    pub webhook_service: Option<String>,
    /// Name of the Secret with the webhooks' certificate [default: <fullname>-admission].
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_SECRET")]
    pub webhook_secret: Option<String>,
    /// Who makes the webhooks' certificate.
    #[arg(
        long,
        env = "IPU_OPERATOR_WEBHOOK_CERTIFICATE",
        value_enum,
        default_value = "made"
    )]
    pub webhook_certificate: Source,
    /// Whether the operator writes the caBundles of the webhook configurations; false: cert-manager or
    /// an admin does.
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_CA_BUNDLE", action = ArgAction::Set, default_value_t = true)]
    pub webhook_ca_bundle: bool,
    /// The CA (PEM, not its file) of the client certificate with which the API server calls the webhooks. A client without
    /// such a certificate is refused in the handshake. Missing: every client may call them.
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_CLIENT_CA")]
    pub webhook_client_ca: Option<String>,
    /// Whether workers run on the host's network, privileged.
    #[arg(long, env = "IPU_OPERATOR_WORKER_HOST_NETWORK", action = ArgAction::Set, default_value_t = true)]
    pub worker_host_network: bool,
    /// Whether Pods that request IPUs and belong to no IPUJob get partitions.
    #[arg(long, env = "IPU_OPERATOR_NATIVE_PODS", action = ArgAction::Set, default_value_t = true)]
    pub native_pods: bool,
    /// Whether jobs with the label kueue.x-k8s.io/queue-name wait until Kueue admits them, where Kueue is installed.
    #[arg(long, env = "IPU_OPERATOR_KUEUE", action = ArgAction::Set, default_value_t = true)]
    pub kueue: bool,
    /// Image that holds /ipu-agent; the operator's own image does.
    #[arg(long, env = "IPU_OPERATOR_LAUNCHER_IMAGE")]
    pub launcher_image: String,
    /// When that image is pulled: Always, IfNotPresent or Never.
    #[arg(long, env = "IPU_OPERATOR_LAUNCHER_IMAGE_PULL_POLICY")]
    pub launcher_image_pull_policy: Option<String>,
    /// Most IPUs of one partition.
    #[arg(long, env = "IPU_OPERATOR_MAX_IPUS_PER_JOB", default_value_t = 64)]
    pub max_ipus_per_job: u32,
    /// Seconds for which a node may be unreachable before Pods there that should have ended are deleted by
    /// force, so that their job continues elsewhere; 0: for ever.
    #[arg(long, env = "IPU_OPERATOR_LOST_NODE_SECONDS", default_value_t = 600)]
    pub lost_node_seconds: u32,
}

impl From<ControllerArguments> for ControllerOptions {
    fn from(arguments: ControllerArguments) -> Self {
        let named = |given: Option<String>, suffix: &str| {
            given.unwrap_or_else(|| format!("{}{suffix}", arguments.release.fullname))
        };
        Self {
            webhook_service: named(arguments.webhook_service, "-webhook-svc"),
            webhook_secret: named(arguments.webhook_secret, "-admission"),
            webhook_certificate: arguments.webhook_certificate,
            webhook_ca_bundle: arguments.webhook_ca_bundle,
            webhook_client_ca: arguments.webhook_client_ca,
            probe_port: arguments.probe_port,
            metrics_port: arguments.metrics_port,
            webhook_port: arguments.webhook_port,
            native_pods: arguments.native_pods,
            kueue: arguments.kueue,
            jobs: JobSettings {
                pods: PodSettings {
                    worker_host_network: arguments.worker_host_network,
                    launcher_image: arguments.launcher_image,
                    launcher_image_pull_policy: arguments.launcher_image_pull_policy,
                },
                max_ipus_per_job: arguments.max_ipus_per_job,
                lost_node: Some(Duration::from_secs(arguments.lost_node_seconds.into()))
                    .filter(|patience| !patience.is_zero()),
                instance: arguments.release.pod_name.clone(),
                scope: arguments.release.scope.clone(),
            },
            release: arguments.release,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory, Parser};

    use super::{Arguments, Task};
    use crate::controller::ControllerOptions;

    #[test]
    fn the_definition_holds() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_proxy_is_told_as_well() {
        let given = [
            "ipu-operator",
            "vipu-proxy",
            "--namespace=ipu-system",
            "--log-level=debug",
        ];
        let Task::VipuProxy(arguments) = Arguments::try_parse_from(given).unwrap().task else {
            panic!("it is the proxy");
        };
        assert_eq!(arguments.log.log_level, "debug");
        assert_eq!(arguments.proxy.release.fullname, "ipu-operator");
    }

    #[test]
    fn what_the_chart_passes_is_understood_and_names_follow_the_fullname() {
        let given = [
            "ipu-operator",
            "controller",
            "--namespace=ipu-system",
            "--fullname=my-ipus",
            "--guests-dir=/guests",
            "--compile-cache-dir=/var/cache/ipu-operator",
            "--log-format=text",
            "--log-level=debug",
            "--probe-port=8081",
            "--webhook-port=9443",
            "--worker-host-network=false",
            "--native-pods=false",
            "--kueue=false",
            "--launcher-image=ipu-operator:1",
            "--launcher-image-pull-policy=IfNotPresent",
            "--max-ipus-per-job=32",
            "--lost-node-seconds=60",
        ];
        let Task::Controller(arguments) = Arguments::try_parse_from(given).unwrap().task else {
            panic!("it is the controller");
        };
        let options = ControllerOptions::from(arguments);
        assert_eq!(options.webhook_service, "my-ipus-webhook-svc");
        assert_eq!(options.webhook_secret, "my-ipus-admission");
        assert_eq!(options.release.configuration(), "my-ipus");
        assert!(!options.jobs.pods.worker_host_network);
        assert!(!options.native_pods);
        assert!(!options.kueue);
        assert_eq!(options.jobs.max_ipus_per_job, 32);
        assert_eq!(options.jobs.lost_node, Some(Duration::from_mins(1)));
    }
}
