//! The command line of `ipu-operator`; every option has an environment variable, too.

use clap::{Parser, Subcommand};
use ipu_authoring::PolicyArgs;
use ipu_node::options::NodeOptions;

use crate::adopt::AdoptArguments;
use crate::certificates::CertificatesOptions;
use crate::controller::ControllerOptions;
use crate::node::NodeArguments;
use crate::proxy::ProxyArguments;
use crate::support::SupportOptions;
use crate::verify::VerifyOptions;

/// A Kubernetes operator for Graphcore IPUs.
#[derive(Debug, Parser)]
#[command(name = "ipu-operator", version)]
pub struct Arguments {
    /// Command to run.
    #[command(subcommand)]
    pub task: Task,
}

/// Commands of the binary.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Serve the webhooks and reconcile IPUJobs.
    Controller(Box<ControllerOptions>),
    /// Create the requested partitions, and answer users over REST.
    VipuProxy(Box<ProxyArguments>),
    /// Issue and renew the certificates of the release, and register the CA of the webhooks.
    Certificates(Box<CertificatesOptions>),
    /// Check periodically whether Pods on this node can use IPUs, and report it on the Node.
    Node(Box<NodeArguments>),
    /// Make the same checks once, and print the results. It fails if one of them failed.
    Doctor(Box<NodeOptions>),
    /// Run one small job to its end, or print why it does not complete.
    Verify(VerifyOptions),
    /// Collect the data for a bug report, without secrets, in one archive.
    SupportBundle(SupportOptions),
    /// Assign the partitions that Graphcore's operator created to the jobs that have not ended.
    Adopt(Box<AdoptArguments>),
    /// Tools for the authors of policies.
    Policy(PolicyArgs),
    /// Print the CustomResourceDefinitions as YAML.
    Crd,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory, Parser};

    use super::{Arguments, Task};

    #[test]
    fn the_definition_holds() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_proxy_has_the_options_as_well() {
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
            "--start-timeout-seconds=0",
        ];
        let Task::Controller(options) = Arguments::try_parse_from(given).unwrap().task else {
            panic!("it is the controller");
        };
        assert_eq!(options.reviewed_scope(), options.release.scope);
        assert_eq!(options.webhook_service(), "my-ipus-webhook-svc");
        assert_eq!(options.webhook_secret(), "my-ipus-admission");
        assert_eq!(options.release.configuration(), "my-ipus");
        assert!(!options.jobs().pods.worker_host_network);
        assert!(!options.native_pods);
        assert!(!options.kueue);
        assert_eq!(options.jobs().max_ipus_per_job, 32);
        assert_eq!(options.jobs().lost_node, Some(Duration::from_mins(1)));
        assert_eq!(options.jobs().pods.start_timeout, None);
    }
}
