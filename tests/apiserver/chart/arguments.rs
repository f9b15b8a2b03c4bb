//! The processes understand the arguments that the chart passes to them, according to their own
//! definition.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use cluster::{command, progress::Progress, settings::Settings, tools::Tools};
use ipu_jobs::build::AgentDelivery;
use ipu_node::facts::Amount;
use ipu_oci::cosign::public_keys;
use ipu_operator::certificates::CertificatesOptions;
use ipu_operator::cli::{Arguments, Task};
use ipu_operator::controller::ControllerOptions;
use ipu_operator::proxy::ProxyOptions;
use ipu_ports::certificates::registration::CaBundles;
use ipu_ports::certificates::{Source, clients};
use ipu_runtime::cluster_domain::ClusterDomain;
use ipu_runtime::scope::Scope;
use serde_json::Value;

use super::admin::KUBERNETES;

/// Returns the arguments of both processes, as a chart with these values passes them.
fn started(values: Option<&str>) -> (ControllerOptions, ProxyOptions, [String; 2]) {
    let Task::Controller(controller) = parsed("controller", values) else {
        panic!("the controller's Deployment starts the controller");
    };
    let Task::VipuProxy(proxy) = parsed("vipu-proxy", values) else {
        panic!("the proxy's Deployment starts the proxy");
    };
    let levels = [&controller.log, &proxy.log].map(|log| log.log_level.clone());
    (*controller, proxy.proxy, levels)
}

/// Returns the arguments of the process that issues certificates, as a chart with these values
/// passes them.
pub(crate) fn certificates_options(values: Option<&str>) -> CertificatesOptions {
    match parsed("certificates", values) {
        Task::Certificates(options) => *options,
        _ => panic!("the Deployment of the certificates starts their process"),
    }
}

fn parsed(process: &str, values: Option<&str>) -> Task {
    let deployment = deployment(process, values);
    let given = command_line(&deployment["spec"]["template"]["spec"]["containers"][0]);
    let arguments = Arguments::try_parse_from(&given);
    arguments
        .unwrap_or_else(|error| panic!("{process} with {values:?}: {error}"))
        .task
}

/// Returns the Deployment of a process, as Helm renders it.
fn deployment(process: &str, values: Option<&str>) -> Value {
    let mut documents = rendered(&format!("{process}-deployment"), values);
    documents.pop().expect("the file has a Deployment")
}

/// Returns the objects of a template, as Helm renders it.
pub(crate) fn rendered(template: &str, values: Option<&str>) -> Vec<Value> {
    let settings = Settings::from_env().unwrap();
    let tools = Tools::fetch_some(&settings, &Progress::start(), &["helm"]).unwrap();
    let chart = settings.checkout.join("charts/ipu-operator");
    let home = tempfile::tempdir().unwrap();
    let mut helm = Command::new(tools.program("helm"));
    helm.args(["template", "ipu-operator"])
        .arg(&chart)
        .arg(KUBERNETES);
    helm.args(["--namespace", "ipu"]).env("HOME", home.path());
    helm.arg(format!("--show-only=templates/{template}.yaml"));
    if let Some(values) = values {
        helm.arg("--values")
            .arg(chart.join("tests/values").join(values));
    }
    // The separator counts only as a line of its own, because certificates contain it, too.
    let text = format!("\n{}", command::output(&mut helm).unwrap());
    let documents = text.split("\n---\n").filter(|text| !text.is_empty());
    documents
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

/// The variable that the memory allocator reads.
const OF_THE_ALLOCATOR: &str = "_RJEM_MALLOC_CONF";

/// Start of the variables that the traces read, which are no options.
const OF_TRACES: &str = "OTEL_RESOURCE_ATTRIBUTES_";

/// Returns the command line of a container. A variable of its environment becomes the option that
/// reads it, so that the test finds variables that nothing reads.
fn command_line(container: &Value) -> Vec<String> {
    let list = |name: &str| container[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut line = vec!["ipu-operator".to_owned()];
    line.extend(list("args").iter().filter_map(text));
    let definition = Arguments::command();
    let process = definition.find_subcommand(&line[1]).unwrap();
    for variable in list("env") {
        let name = text(&variable["name"]).unwrap();
        if name == OF_THE_ALLOCATOR || name.starts_with(OF_TRACES) {
            continue;
        }
        let option = process
            .get_arguments()
            .find(|option| option.get_env().and_then(|env| env.to_str()) == Some(name.as_str()));
        let option = option.unwrap_or_else(|| panic!("no option of {} reads {name}", line[1]));
        let long = option.get_long().unwrap();
        // Any text stands for the fields that the cluster fills in.
        let value = text(&variable["value"]).unwrap_or_else(|| "filled-in".to_owned());
        line.push(format!("--{long}={value}"));
    }
    line
}

#[test]
fn by_default_the_processes_start_as_the_chart_says() {
    let (controller, proxy, levels) = started(None);
    for release in [&controller.release, &proxy.release] {
        assert_eq!(release.namespace, "ipu");
        assert_eq!(release.fullname, "ipu-operator");
        assert_eq!(release.cluster_domain, ClusterDomain::default());
        assert_eq!(release.guests_dir, Path::new("/guests"));
        assert!(release.compile_cache_dir.is_some());
        assert_eq!(release.module_dir, None);
    }
    assert_eq!(
        (controller.probe_port, controller.webhook_port),
        (8081, 9443)
    );
    assert_eq!(controller.metrics_port, 8443);
    assert_eq!(controller.webhook_service(), "ipu-operator-webhook-svc");
    assert_eq!(controller.webhook_secret(), "ipu-operator-admission");
    for release in [&controller.release, &proxy.release] {
        assert_eq!(release.scope, Scope::Cluster);
        assert_eq!(release.configuration(), "ipu-operator");
    }
    assert_eq!(controller.webhook_certificate, Source::Issued);
    assert_eq!(controller.webhook_ca_bundle, CaBundles::Awaited);
    assert!(!controller.webhook_owner);
    assert_eq!(controller.webhook_client_ca, None);
    let pods = controller.jobs().pods;
    assert!(pods.worker_host_network);
    assert!(!pods.avoid_failed_nodes && !proxy.avoid_failed_nodes);
    assert!(!proxy.export_machines);
    let own = format!("ipu-operator:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(pods.launcher_image, own);
    assert_eq!(pods.launcher_policy, None);
    assert_eq!(pods.agent_delivery, AgentDelivery::Init);
    assert_eq!(
        pods.launcher_image_pull_policy.as_deref(),
        Some("IfNotPresent")
    );
    assert_eq!(controller.jobs().max_ipus_per_job, 64);
    assert_eq!(controller.jobs().lost_node, Some(Duration::from_mins(10)));
    assert_eq!((proxy.port, proxy.vipu_timeout_seconds), (8080, 300));
    assert_eq!(proxy.secure.secure_port, 8443);
    assert_eq!(proxy.probe_port, 8081);
    assert_eq!(proxy.secure.audience, "ipu-operator");
    assert_eq!(proxy.secure.certificate, Source::Issued);
    assert_eq!(proxy.secure.certificate_secret, None);
    let list = proxy.controllers_configmap.as_deref();
    assert_eq!(list, Some("ipu-operator-vipu-controllers"));
    assert_eq!(proxy.tracker_configmap, "ipu-partitions-tracker");
    assert_eq!(levels, ["info", "info"]);
}

#[test]
fn every_value_reaches_the_process_that_it_is_for() {
    let (controller, proxy, levels) = started(Some("everything.yaml"));
    for release in [&controller.release, &proxy.release] {
        assert_eq!(release.fullname, "my-ipus");
        assert_eq!(release.cluster_domain.to_string(), "k8s.example.com");
        assert_eq!(release.pod_name.as_deref(), Some("filled-in"));
        let modules = Path::new("/var/lib/ipu-operator/modules");
        assert_eq!(release.module_dir.as_deref(), Some(modules));
        let [pem, map] = release.required_keys.0.as_slice() else {
            panic!("{:?}", release.required_keys);
        };
        let pem = pem.pem.as_deref().unwrap();
        public_keys(pem.as_bytes()).expect("the PEM arrives with its line breaks");
        let map = map.config_map.as_ref().unwrap();
        assert_eq!((&*map.name, &*map.key), ("policy-keys", "cosign.pub"));
    }
    let scope = "default,kube-public".parse().unwrap();
    assert_eq!(controller.release.scope, scope);
    assert_eq!(controller.jobs().scope, scope);
    assert_eq!(proxy.release.scope, scope);
    assert_eq!(controller.webhook_port, 9444);
    assert_eq!(controller.webhook_service(), "my-ipus-webhook-svc");
    assert_eq!(controller.webhook_secret(), "my-webhook-certificate");
    assert_eq!(controller.webhook_certificate, Source::Given);
    assert_eq!(controller.webhook_ca_bundle, CaBundles::Foreign);
    assert!(!controller.webhook_owner);
    let client_ca = controller.webhook_client_ca.as_deref().unwrap();
    clients::verifier(client_ca).expect("the PEM arrives with its line breaks");
    for release in [&controller.release, &proxy.release] {
        assert_eq!(release.configuration(), "my-ipus.ipu");
    }
    let pods = controller.jobs().pods;
    assert!(!pods.worker_host_network);
    assert!(pods.avoid_failed_nodes && proxy.avoid_failed_nodes);
    assert_eq!(pods.agent_delivery, AgentDelivery::Image);
    assert!(proxy.export_machines);
    assert_eq!(pods.launcher_image, "images.example.com/agent:7");
    assert_eq!(pods.launcher_image_pull_policy.as_deref(), Some("Always"));
    let policy = pods.launcher_policy.as_deref();
    assert_eq!(policy, Some("my-ipus-launchers.ipu"));
    assert_eq!(controller.jobs().max_ipus_per_job, 16);
    assert_eq!(controller.jobs().lost_node, Some(Duration::from_secs(30)));
    assert_eq!((proxy.port, proxy.vipu_timeout_seconds), (9090, 60));
    assert_eq!(proxy.secure.secure_port, 9445);
    assert_eq!(proxy.secure.audience, "my-audience");
    assert_eq!(proxy.secure.certificate, Source::Given);
    let secret = proxy.secure.certificate_secret.as_deref();
    assert_eq!(secret, Some("my-proxy-certificate"));
    let list = proxy.controllers_configmap.as_deref();
    assert_eq!(list, Some("my-ipus-vipu-controllers"));
    assert_eq!(proxy.tracker_configmap, "my-tracker");
    assert_eq!(levels, ["debug", "trace"]);
}

#[test]
fn the_process_of_the_certificates_starts_as_the_chart_says() {
    let options = certificates_options(None);
    assert_eq!(options.release.namespace, "ipu");
    assert_eq!(options.release.fullname, "ipu-operator");
    assert_eq!(options.release.cluster_domain, ClusterDomain::default());
    assert_eq!(options.release.configuration(), "ipu-operator");
    let service = options.webhook_service.as_deref();
    assert_eq!(service, Some("ipu-operator-webhook-svc"));
    let secret = options.webhook_secret.as_deref();
    assert_eq!(secret, Some("ipu-operator-admission"));
    assert!(options.issue && options.webhook_owner);
    assert_eq!(options.log.log_level, "info");
}

#[test]
fn the_checks_of_nodes_start_as_the_chart_says() {
    let started = |template: &str| {
        let objects = rendered(template, Some("everything.yaml"));
        let container = &objects[0]["spec"]["template"]["spec"]["containers"][0];
        Arguments::try_parse_from(command_line(container))
            .unwrap()
            .task
    };
    let Task::Node(node) = started("node-daemonset") else {
        panic!("the DaemonSet starts the checks");
    };
    assert_eq!(node.interval_seconds, 30);
    assert_eq!(node.log.log_level, "debug");
    let Task::Doctor(doctor) = started("node-test") else {
        panic!("the Job makes the checks once");
    };
    for checks in [&node.checks, &doctor] {
        assert_eq!(checks.node, "filled-in");
        assert_eq!(checks.connect_timeout_seconds, 2);
        let requirements = &checks.requirements;
        assert!(requirements.rdma);
        assert_eq!(requirements.rdma_devices, ["mlx5_0", "mlx5_1"]);
        assert_eq!(requirements.rdma_resource, "rdma/rdma_shared_device_a");
        assert_eq!(requirements.networks[0].to_string(), "default/rdma-net");
        assert_eq!(requirements.memlock, Some(Amount::Unlimited));
        assert_eq!(requirements.shared_memory, Some(1 << 30));
        assert_eq!(requirements.huge_pages, 512);
        assert_eq!(requirements.kernel_modules, ["mlx5_ib", "rdma_cm"]);
    }
}

#[test]
fn traces_go_where_the_values_say_and_by_default_nowhere() {
    let collector = Some("https://collector.observability:4317".to_owned());
    for (values, wanted) in [(None, None), (Some("everything.yaml"), collector)] {
        let folder = wanted.as_ref().map(|_| PathBuf::from("/traces-tls"));
        for process in ["controller", "vipu-proxy"] {
            let log = match parsed(process, values) {
                Task::Controller(arguments) => arguments.log,
                Task::VipuProxy(arguments) => arguments.log,
                _ => panic!("the Deployment starts {process}"),
            };
            assert_eq!(log.traces_endpoint, wanted, "{process} with {values:?}");
            assert_eq!(log.traces_tls_dir, folder, "{process} with {values:?}");
        }
    }
}

#[test]
fn values_of_older_versions_start_them_too() {
    for values in ["alpha-5.yaml", "version-1.2.0.yaml"] {
        started(Some(values));
    }
}

#[test]
fn the_network_policies_allow_every_served_port_except_probes_and_no_other() {
    for values in [None, Some("everything.yaml")] {
        let policies = rendered("network-policies", values);
        for (process, name) in [
            ("controller", "controller-manager"),
            ("vipu-proxy", "vipu-proxy"),
        ] {
            let served = deployment(process, values);
            let served = served["spec"]["template"]["spec"]["containers"][0]["ports"].clone();
            // The kubelet's probes come from the Pod's own node, which is always allowed.
            let served = served.as_array().unwrap().iter();
            let served = served.filter(|port| port["name"] != "probes").cloned();
            let mut served = numbers(&served.collect(), "containerPort");
            let mut policies = policies.iter();
            let policy = policies.find(|policy| {
                let found = policy["metadata"]["name"].as_str();
                found.is_some_and(|found| found.ends_with(name))
            });
            let rules = &policy.expect("each process has a policy")["spec"]["ingress"];
            let rules = rules.as_array().unwrap().iter();
            let mut open: Vec<u64> = rules
                .flat_map(|rule| numbers(&rule["ports"], "port"))
                .collect();
            served.sort_unstable();
            open.sort_unstable();
            assert_eq!(open, served, "{process} with {values:?}");
        }
    }
}

fn numbers(list: &Value, key: &str) -> Vec<u64> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one[key].as_u64().unwrap()).collect()
}
