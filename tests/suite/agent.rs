//! Checks that the agent and the operator use the same names, because neither depends on the other.

use std::path::Path;

use ipu_agent::exec::KnownPod;
use ipu_agent::install;
use ipu_api::labels;
use ipu_api::naming;
use ipu_jobs::build::{AgentDelivery, PodSettings, agent, agent_files, hostfile};
use ipu_jobs::validate::{self, ValidJob};
use serde_json::json;

#[test]
fn the_agent_and_the_operator_use_the_same_names() {
    assert_eq!(
        ipu_agent::DEFAULT_CONTAINER_ANNOTATION,
        labels::DEFAULT_CONTAINER_ANNOTATION
    );
    assert_eq!(
        ipu_agent::MAIN_CONTAINER_ANNOTATION,
        labels::MAIN_CONTAINER_ANNOTATION
    );
    assert_eq!(ipu_agent::hold::HELD, labels::HELD);
    assert_eq!(
        ipu_agent::hold::annotation::START_ANNOTATION,
        labels::START_ANNOTATION
    );
    let own_pod = agent::OWN_POD.map(|(name, _)| name);
    assert_eq!(ipu_agent::hold::annotation::FILES, own_pod);
    for index in [0, 9, 10, u32::MAX] {
        // The hostfile has the host names, as far as they are names of Pods without dots.
        for job in ["mnist", "a.b"] {
            let host = naming::worker_host_name(job, index);
            let host = host.unwrap_or_else(|| naming::worker(job, index));
            assert_eq!(ipu_agent::names::host(job, index), host);
        }
        assert_eq!(
            ipu_agent::names::worker("a.b", index),
            naming::worker("a.b", index)
        );
    }
    assert_eq!(install::KUBEEXEC, agent::KUBEEXEC);
    assert_eq!(install::HOSTFILE, agent::HOSTFILE);
    let policy = include_str!("../../charts/ipu-operator/templates/launcher-rights.yaml");
    for name in [naming::SHARED_LAUNCHERS, agent::PROGRAM] {
        assert!(policy.contains(&format!(":= {name:?}")), "{name}");
    }
    let program = Path::new(agent::FOLDER).join(install::FILE_NAME);
    assert_eq!(Path::new(agent::PROGRAM), program);
}

#[test]
fn a_mounted_agent_has_the_files_that_an_installed_one_writes() {
    for (name, shares_rights, on_host) in [
        ("mnist", false, false),
        ("parallel.v1", true, false),
        ("parallel.v1", true, true),
    ] {
        let job = parallel(name);
        let settings = PodSettings {
            launcher_policy: shares_rights.then(|| "policy".to_owned()),
            worker_host_network: on_host,
            ..settings()
        };
        let known = shares_rights.then(|| KnownPod {
            container: "main".to_owned(),
            uses_host_network: on_host,
        });
        let workers = install::Workers {
            job: name.to_owned(),
            count: 12,
            known,
        };
        let hostfile = hostfile::hostfile(name, hostfile::workers(&job));
        assert_eq!(hostfile, install::hostfile(&workers));
        let script = install::kubeexec(Path::new(agent::PROGRAM), &workers);
        assert_eq!(agent_files::kubeexec(&job, &settings), script);
    }
}

fn parallel(name: &str) -> ValidJob {
    let job = json!({
        "metadata": {"name": name, "namespace": "default", "uid": "1"},
        "spec": {
            "jobInstances": 3, "ipusPerJobInstance": "4", "workersPerJobInstance": "4",
            "launcher": {"command": ["mpirun"]},
            "workers": {"template": {"spec": {"containers": [{"name": "main", "image": "a"}]}}},
        },
    });
    validate::read(&job, u32::MAX).unwrap()
}

fn settings() -> PodSettings {
    PodSettings {
        worker_host_network: false,
        avoid_failed_nodes: false,
        launcher_image: "ipu-operator:1".to_owned(),
        launcher_image_pull_policy: None,
        agent_delivery: AgentDelivery::Image,
        launcher_resources: None,
        launcher_policy: None,
        start_timeout: None,
    }
}
