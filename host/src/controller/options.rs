//! The options of the controller process.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use ipu_jobs::JobSettings;
use ipu_jobs::build::{AgentDelivery, PodSettings};
use ipu_jobs::delivery::ProbeSettings;
use ipu_ports::certificates::Source;
use ipu_ports::certificates::registration::CaBundles;
use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::scope::Scope;
use ipu_runtime::telemetry::LogArguments;
use k8s_openapi::api::core::v1::ResourceRequirements;
use serde_json::{Value, json};

/// How the agent gets into Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Delivery {
    /// An init container copies it.
    Init,
    /// The kubelet mounts its image.
    Image,
    /// The kubelet mounts its image while probes have shown that all nodes can, and otherwise an
    /// init container copies it.
    Auto,
}

/// Options of the controller process.
#[derive(Clone, Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one option of the command line"
)]
pub struct ControllerOptions {
    /// Options of the log.
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
    /// Issuer of the webhooks' certificate.
    #[arg(
        long,
        env = "IPU_OPERATOR_WEBHOOK_CERTIFICATE",
        value_enum,
        default_value = "made"
    )]
    pub webhook_certificate: Source,
    /// Writer of the caBundles of the webhook configurations.
    #[arg(
        long,
        env = "IPU_OPERATOR_WEBHOOK_CA_BUNDLE",
        value_enum,
        default_value = "true"
    )]
    pub webhook_ca_bundle: CaBundles,
    /// Whether the operator makes the Namespace of the release the owner of the webhook
    /// configurations.
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_OWNER", action = ArgAction::Set, default_value_t = true)]
    pub webhook_owner: bool,
    /// The CA (PEM, not its file) of the client certificate with which the API server calls the
    /// webhooks. A client without such a certificate is refused in the handshake. Missing: every
    /// client may call them.
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_CLIENT_CA")]
    pub webhook_client_ca: Option<String>,
    /// Names of the namespaces in which the API server calls the webhooks, separated by commas
    /// [default: the served ones].
    #[arg(long, env = "IPU_OPERATOR_REVIEWED_NAMESPACES")]
    pub reviewed_namespaces: Option<Scope>,
    /// Whether workers run on the host's network, privileged.
    #[arg(long, env = "IPU_OPERATOR_WORKER_HOST_NETWORK", action = ArgAction::Set, default_value_t = true)]
    pub worker_host_network: bool,
    /// Whether workers avoid nodes with a failed check of ipu-node.
    #[arg(long, env = "IPU_OPERATOR_AVOID_FAILED_NODES", action = ArgAction::Set, default_value_t = false)]
    pub avoid_failed_nodes: bool,
    /// Whether Pods that request IPUs and belong to no IPUJob get partitions.
    #[arg(long, env = "IPU_OPERATOR_NATIVE_PODS", action = ArgAction::Set, default_value_t = true)]
    pub native_pods: bool,
    /// Whether jobs with the label kueue.x-k8s.io/queue-name wait until Kueue admits them, where
    /// Kueue is installed.
    #[arg(long, env = "IPU_OPERATOR_KUEUE", action = ArgAction::Set, default_value_t = true)]
    pub kueue: bool,
    /// Image that holds /ipu-agent; the operator's own image does.
    #[arg(long, env = "IPU_OPERATOR_LAUNCHER_IMAGE")]
    pub launcher_image: String,
    /// Pull policy of that image: Always, IfNotPresent or Never.
    #[arg(long, env = "IPU_OPERATOR_LAUNCHER_IMAGE_PULL_POLICY")]
    pub launcher_image_pull_policy: Option<String>,
    /// How the agent of that image gets into Pods.
    #[arg(
        long,
        env = "IPU_OPERATOR_AGENT_DELIVERY",
        value_enum,
        default_value = "init"
    )]
    pub agent_delivery: Delivery,
    /// Names of the pull secrets for that image in the namespace of the release, separated by
    /// commas: for the Pods that probe nodes.
    #[arg(
        long,
        env = "IPU_OPERATOR_AGENT_PROBE_PULL_SECRETS",
        value_delimiter = ','
    )]
    pub agent_probe_pull_secrets: Vec<String>,
    /// Requests and limits of launchers whose job sets none, as JSON.
    #[arg(long, env = "IPU_OPERATOR_LAUNCHER_RESOURCES", value_parser = resources)]
    pub launcher_resources: Option<ResourceRequirements>,
    /// Name of the ValidatingAdmissionPolicy that binds launchers with shared rights to the workers
    /// of their own job, and of its binding. Missing: each launcher gets rights of its own.
    #[arg(long, env = "IPU_OPERATOR_LAUNCHER_POLICY")]
    pub launcher_policy: Option<String>,
    /// Networks of the release for workers, as JSON: the setting `networks` of the defaulting
    /// guest.
    #[arg(long, env = "IPU_OPERATOR_NETWORK_PRESETS", value_parser = networks)]
    pub network_presets: Option<Value>,
    /// Network of workers whose job names none.
    #[arg(
        long,
        env = "IPU_OPERATOR_WORKER_NETWORK",
        requires = "network_presets"
    )]
    pub worker_network: Option<String>,
    /// Most IPUs of one partition.
    #[arg(long, env = "IPU_OPERATOR_MAX_IPUS_PER_JOB", default_value_t = 64)]
    pub max_ipus_per_job: u32,
    /// Seconds for which a node may be unreachable before Pods there that should have ended are
    /// deleted by force, so that their job continues elsewhere; 0: for ever.
    #[arg(long, env = "IPU_OPERATOR_LOST_NODE_SECONDS", default_value_t = 600)]
    pub lost_node_seconds: u32,
    /// Seconds after which Pods of a job that cannot start give their partition back; 0: never.
    #[arg(
        long,
        env = "IPU_OPERATOR_START_TIMEOUT_SECONDS",
        default_value_t = 600
    )]
    pub start_timeout_seconds: u32,
}

impl ControllerOptions {
    /// Name of the webhooks' Service.
    pub fn webhook_service(&self) -> String {
        self.named(self.webhook_service.as_ref(), "-webhook-svc")
    }

    /// Name of the Secret with the webhooks' certificate, which is in the namespace of the release.
    pub fn webhook_secret(&self) -> String {
        self.named(self.webhook_secret.as_ref(), "-admission")
    }

    /// The namespaces whose objects the webhooks review.
    pub fn reviewed_scope(&self) -> Scope {
        let given = self.reviewed_namespaces.as_ref();
        given.unwrap_or(&self.release.scope).clone()
    }

    /// Settings of an admin for jobs.
    pub fn jobs(&self) -> JobSettings {
        let seconds = |seconds: u32| {
            let time = Duration::from_secs(seconds.into());
            Some(time).filter(|time| !time.is_zero())
        };
        JobSettings {
            pods: PodSettings {
                worker_host_network: self.worker_host_network,
                avoid_failed_nodes: self.avoid_failed_nodes,
                launcher_image: self.launcher_image.clone(),
                launcher_image_pull_policy: self.launcher_image_pull_policy.clone(),
                agent_delivery: match self.agent_delivery {
                    Delivery::Init | Delivery::Auto => AgentDelivery::Init,
                    Delivery::Image => AgentDelivery::Image,
                },
                launcher_resources: self.launcher_resources.clone(),
                launcher_policy: self.launcher_policy.clone(),
                start_timeout: seconds(self.start_timeout_seconds),
            },
            max_ipus_per_job: self.max_ipus_per_job,
            lost_node: seconds(self.lost_node_seconds),
            instance: self.release.pod_name.clone(),
            scope: self.release.scope.clone(),
        }
    }

    /// What the probes of nodes are built from. `None`: nothing depends on the nodes.
    pub fn agent_probes(&self) -> Option<ProbeSettings> {
        let are_probed = self.agent_delivery == Delivery::Auto;
        are_probed.then(|| ProbeSettings {
            namespace: self.release.namespace.clone(),
            fullname: self.release.fullname.clone(),
            pod_name: self.release.pod_name.clone(),
            image: self.launcher_image.clone(),
            pull_policy: self.launcher_image_pull_policy.clone(),
            pull_secrets: self.agent_probe_pull_secrets.clone(),
        })
    }

    /// Settings of the built-in guests.
    pub fn guests(&self) -> Value {
        let mut settings = json!({ "maxIpusPerJob": self.max_ipus_per_job });
        if let Some(networks) = &self.network_presets {
            settings["networks"] = networks.clone();
        }
        if let Some(name) = &self.worker_network {
            settings["workerNetwork"] = json!(name);
        }
        settings
    }

    fn named(&self, given: Option<&String>, suffix: &str) -> String {
        let by_default = || format!("{}{suffix}", self.release.fullname);
        given.cloned().unwrap_or_else(by_default)
    }
}

fn networks(json: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(json)
}

fn resources(json: &str) -> Result<ResourceRequirements, serde_json::Error> {
    serde_json::from_str(json)
}
