//! Pure: gives the daemon of Open MPI 5, `prted`, a host name of its own.
//!
//! Open MPI 5 identifies a worker by the host name that its daemon reports, not by the hostfile.
//! Workers on the host network have the host name of their node. A program hangs if Open MPI takes
//! two workers for one node.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;

use crate::names::without_dots;

/// Name of the daemon's program.
const PRTED: &str = "prted";

/// Characters of the longest host name.
const LONGEST: usize = 63;

/// Returns the command for the container. A daemon on the host network gets the name of its Pod as
/// host name. `agent` is the path of the agent in the launcher and the workers.
pub fn with_host_name(pod: &Pod, container: &str, agent: &Path, command: &[String]) -> Vec<String> {
    let uses_host_network = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.host_network == Some(true));
    let is_needed = uses_host_network && starts_daemon(command) && has_agent(pod, container, agent);
    let name = host_name(pod).filter(|_| is_needed);
    let Some(name) = name else {
        return command.to_vec();
    };
    let agent = agent.display().to_string();
    let mut words = vec![agent, "host-name".to_owned()];
    let status = pod.status.as_ref();
    if let Some(address) = status.and_then(|status| status.pod_ip.clone()) {
        words.extend(["--address".to_owned(), address]);
    }
    words.extend([name, "--".to_owned()]);
    words.extend(command.iter().cloned());
    words
}

/// Returns the command for a Pod with the agent that cannot be read. The agent in the Pod starts
/// it, on the host network with the name in the hostfile as the host name of a daemon. The operator
/// lets other Pods be read.
pub fn through_agent(
    pod: &str,
    uses_host_network: bool,
    agent: &Path,
    command: &[String],
) -> Vec<String> {
    let name = without_dots(pod);
    let task = if uses_host_network && starts_daemon(command) && name.len() <= LONGEST {
        vec!["host-name".to_owned(), name]
    } else {
        vec!["run".to_owned()]
    };
    let agent = std::iter::once(agent.display().to_string());
    let words = agent.chain(task).chain(["--".to_owned()]);
    words.chain(command.iter().cloned()).collect()
}

/// The name in the hostfile, or if that is too long, the host name that the operator gives such a
/// Pod.
fn host_name(pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref().map(without_dots);
    let chosen = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    name.filter(|name| name.len() <= LONGEST).or(chosen)
}

/// Whether a command of a shell starts the daemon. mpirun sets variables before it.
fn starts_daemon(command: &[String]) -> bool {
    let words = command.iter().flat_map(|text| text.split([' ', ';']));
    words
        .filter_map(|word| Path::new(word).file_name())
        .any(|name| name == PRTED)
}

/// Whether the container mounts the folder of the agent. The user can have named another one for
/// commands.
fn has_agent(pod: &Pod, container: &str, agent: &Path) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let folder = agent.parent();
    containers
        .filter(|found| found.name == container)
        .flat_map(|found| found.volume_mounts.iter().flatten())
        .any(|mount| Some(Path::new(&mount.mount_path)) == folder)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::{through_agent, with_host_name};

    const AGENT: &str = "/ipu-operator-agent/ipu-agent";

    const DAEMON: &str = "PRTE_PREFIX=/usr;export PRTE_PREFIX;/usr/bin/prted --daemonize";

    fn words(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    /// The command for a worker on the host network, changed.
    fn carried(script: &str, change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mount = json!({ "name": "ipu-operator-agent", "mountPath": "/ipu-operator-agent" });
        let mut pod = json!({
            "metadata": { "name": "mnist-worker-1" },
            "spec": {
                "hostNetwork": true,
                "containers": [{ "name": "main", "volumeMounts": [mount] }, { "name": "sidecar" }],
            },
            "status": { "podIP": "10.0.0.2" },
        });
        change(&mut pod);
        let pod: Pod = serde_json::from_value(pod).unwrap();
        with_host_name(&pod, "main", Path::new(AGENT), &words(script))
    }

    fn named(name: &str, script: &str) -> Vec<String> {
        let before = [AGENT, "host-name", "--address", "10.0.0.2", name, "--"].map(str::to_owned);
        [before.to_vec(), words(script)].concat()
    }

    #[test]
    fn daemon_on_the_host_network_has_the_name_of_its_pod() {
        for script in [DAEMON, "prted --daemonize", "/opt/mpi/bin/prted"] {
            assert_eq!(carried(script, |_| {}), named("mnist-worker-1", script));
        }
    }

    #[test]
    fn name_is_that_of_the_hostfile_or_shorter() {
        let rename = |name: &str, hostname: Value| {
            let name = name.to_owned();
            move |pod: &mut Value| {
                pod["metadata"]["name"] = json!(name);
                pod["spec"]["hostname"] = hostname;
            }
        };
        let dotted = carried(DAEMON, rename("a.b-worker-0", json!("user")));
        assert_eq!(dotted, named("a-b-worker-0", DAEMON));
        let long = "j".repeat(64);
        let shortened = carried(DAEMON, rename(&long, json!("short-worker-0")));
        assert_eq!(shortened, named("short-worker-0", DAEMON));
        assert_eq!(carried(DAEMON, rename(&long, json!(null))), words(DAEMON));
    }

    #[test]
    fn commands_for_pods_that_cannot_be_read_are_started_by_the_agent_there() {
        for (script, uses_host_network, task) in [
            (DAEMON, true, &["host-name", "a-b-worker-0"][..]),
            (DAEMON, false, &["run"]),
            ("hostname", true, &["run"]),
        ] {
            let command = words(script);
            let started = through_agent(
                "a.b-worker-0",
                uses_host_network,
                Path::new(AGENT),
                &command,
            );
            let before = [&[AGENT], task, &["--"]].concat();
            let before: Vec<String> = before.into_iter().map(str::to_owned).collect();
            assert_eq!(started, [before, command].concat());
        }
    }

    #[test]
    fn other_commands_and_pods_keep_their_host_name() {
        for script in ["orted --daemonize", "hostname", "echo prted-like"] {
            assert_eq!(carried(script, |_| {}), words(script), "{script}");
        }
        let changes: [fn(&mut Value); 3] = [
            |pod| pod["spec"]["hostNetwork"] = json!(null),
            |pod| pod["spec"]["hostNetwork"] = json!(false),
            |pod| pod["spec"]["containers"][0]["volumeMounts"] = json!(null),
        ];
        for change in changes {
            assert_eq!(carried(DAEMON, change), words(DAEMON));
        }
    }
}
