//! Pure: builds the environment by which Poplar, poprun and Open MPI find their IPUs and workers.

use ipu_api::labels::VIPU_TIMEOUT;
use ipu_api::naming;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapEnvSource, Container, EnvFromSource, EnvVar};

use super::{agent, metadata};
use crate::facts::partition::PlacedPartition;
use crate::validate::{Size, ValidJob};

/// Builds the environment of a worker's containers: the partition, their GCD, and their share of
/// the replicas.
pub fn of_worker(job: &ValidJob, placed: &PlacedPartition, gcd: u32) -> Vec<EnvVar> {
    let mut env = of_partition(placed);
    env.push(variable("IPUOF_VIPU_API_GCD_ID", &gcd.to_string()));
    env.extend(of_replicas(job.size, gcd));
    env
}

/// Builds the environment of the launcher: the partition, which poprun needs, and the workers for
/// Open MPI.
pub fn of_launcher(job: &ValidJob, placed: &PlacedPartition) -> Vec<EnvVar> {
    let mut env = of_partition(placed);
    env.extend(of_open_mpi());
    env.extend(of_grace_period(job));
    env
}

/// Gives a container variables of the operator. Those of the container take precedence, and follow,
/// so that their values can refer to the others.
///
/// `env` would also take precedence over the user's `envFrom`, whose ConfigMaps and Secrets the
/// operator does not read. Beside such a list, the variables come first in it, from a ConfigMap of
/// the job.
pub fn give(container: &mut Container, job: &ValidJob, ours: Vec<EnvVar>) {
    if comes_first(container) {
        let source = EnvFromSource {
            config_map_ref: Some(ConfigMapEnvSource {
                name: config_map_name(job, &ours),
                optional: None,
            }),
            ..EnvFromSource::default()
        };
        container.env_from.get_or_insert_default().insert(0, source);
    } else {
        let own = container.env.take().unwrap_or_default();
        container.env = Some(merge(ours, own));
    }
}

/// Whether the operator's variables come first in the `envFrom` of a container, because it has such
/// a list.
pub fn comes_first(container: &Container) -> bool {
    container
        .env_from
        .as_ref()
        .is_some_and(|list| !list.is_empty())
}

/// Builds the ConfigMap with these variables. Its name contains a hash of them, so it never
/// changes.
pub fn config_map(job: &ValidJob, ours: &[EnvVar]) -> ConfigMap {
    let data = ours.iter().map(|variable| {
        let value = variable.value.clone().unwrap_or_default();
        (variable.name.clone(), value)
    });
    ConfigMap {
        metadata: metadata(job, config_map_name(job, ours)),
        data: Some(data.collect()),
        immutable: Some(true),
        binary_data: None,
    }
}

fn config_map_name(job: &ValidJob, ours: &[EnvVar]) -> String {
    let variables = ours.iter().flat_map(|variable| {
        let value = variable.value.as_deref().unwrap_or_default();
        [variable.name.as_str(), value]
    });
    let parts: Vec<&str> = std::iter::once(job.uid.as_str()).chain(variables).collect();
    naming::environment(&job.name, &parts)
}

/// Merges two lists of variables: `stronger` replaces variables of `weaker`, and follows them, so
/// that its values can refer to the others.
pub fn merge(mut weaker: Vec<EnvVar>, stronger: Vec<EnvVar>) -> Vec<EnvVar> {
    weaker.retain(|variable| stronger.iter().all(|set| set.name != variable.name));
    weaker.extend(stronger);
    weaker
}

fn of_partition(placed: &PlacedPartition) -> Vec<EnvVar> {
    vec![
        variable("IPUOF_VIPU_API_HOST", &placed.controller.host),
        variable("IPUOF_VIPU_API_PORT", &placed.controller.port.to_string()),
        variable("IPUOF_VIPU_API_PARTITION_ID", &placed.id),
        variable("IPUOF_VIPU_API_TIMEOUT", VIPU_TIMEOUT),
    ]
}

/// Returns the variables of poprun, if there is more than one replica: Poplar programs take them as
/// a sign of poprun.
fn of_replicas(size: Size, gcd: u32) -> Vec<EnvVar> {
    let total = size.replicas();
    if total <= 1 {
        return Vec::new();
    }
    let numbers = [
        ("POPDIST_NUM_TOTAL_REPLICAS", total),
        ("POPDIST_NUM_LOCAL_REPLICAS", size.replicas_per_worker),
        ("POPDIST_NUM_IPUS_PER_REPLICA", size.ipus / total),
        (
            "POPDIST_REPLICA_INDEX_OFFSET",
            gcd * size.replicas_per_worker,
        ),
        // Each worker is its own host, with one instance.
        ("POPDIST_LOCAL_INSTANCE_INDEX", 0),
        ("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", 1),
    ];
    numbers
        .iter()
        .map(|(name, number)| variable(name, &number.to_string()))
        .collect()
}

/// Returns the variables of Open MPI. Versions 4 (`OMPI_MCA_plm_rsh_*`, `orte_*`) and 5
/// (`PRTE_MCA_*`) ignore each other's names without a message, and version 5 would run all ranks in
/// the launcher, so both are set. Only the launcher may exec, so there is no tree spawn.
fn of_open_mpi() -> Vec<EnvVar> {
    let file = |name| format!("{}/{name}", agent::FOLDER);
    let (script, hostfile) = (file(agent::KUBEEXEC), file(agent::HOSTFILE));
    vec![
        variable("OMPI_MCA_plm_rsh_agent", &script),
        variable("OMPI_MCA_plm_rsh_no_tree_spawn", "1"),
        variable("OMPI_MCA_orte_default_hostfile", &hostfile),
        variable("PRTE_MCA_plm_ssh_agent", &script),
        variable("PRTE_MCA_plm_ssh_no_tree_spawn", "1"),
        variable("PRTE_MCA_prte_default_hostfile", &hostfile),
        variable("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ]
}

/// Returns the variable by which the daemons of Open MPI 4 leave the program its grace period, if
/// the template sets one. A daemon waits this time twice: before SIGTERM, which the program then
/// has from `ipu-agent`, and before SIGKILL. It also waits when a rank fails, so the default of a
/// second stays in all other jobs. Version 5 waits half a second in all cases.
fn of_grace_period(job: &ValidJob) -> Option<EnvVar> {
    let seconds = job.template.spec.termination_grace_period_seconds?;
    let half = agent::grace_seconds(Some(seconds)) / 2;
    (half > 1).then(|| variable("OMPI_MCA_odls_base_sigkill_timeout", &half.to_string()))
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}
