//! Checks that the agent and the operator use the same names, because neither depends on the other.

use std::path::Path;

use ipu_agent::install;
use ipu_api::labels;
use ipu_api::naming;
use ipu_jobs::build::agent;

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
