//! Pure: builds the environment by which Poplar, poprun and Open MPI find their IPUs and workers.

use ipu_api::labels::VIPU_TIMEOUT;
use k8s_openapi::api::core::v1::EnvVar;

use super::agent;
use crate::facts::partition::PlacedPartition;
use crate::validate::{Size, ValidJob};

/// Builds the environment of a worker's containers: the partition, their GCD, and their share of the replicas.
pub fn of_worker(job: &ValidJob, placed: &PlacedPartition, gcd: u32) -> Vec<EnvVar> {
    let mut env = of_partition(placed);
    env.push(variable("IPUOF_VIPU_API_GCD_ID", &gcd.to_string()));
    env.extend(of_replicas(job.size, gcd));
    env
}

/// Builds the environment of the launcher: the partition, which poprun needs, and the workers for Open MPI.
pub fn of_launcher(placed: &PlacedPartition) -> Vec<EnvVar> {
    let mut env = of_partition(placed);
    env.extend(of_open_mpi());
    env
}

/// Merges two lists of variables: `stronger` replaces variables of `weaker`, and follows them, so that its values can
/// refer to the others.
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

/// Returns the variables of poprun, if there is more than one replica: Poplar programs take them as a sign of poprun.
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

/// Returns the variables of Open MPI. Versions 4 (`OMPI_MCA_plm_rsh_*`, `orte_*`) and 5 (`PRTE_MCA_*`) ignore each
/// other's names without a message, and version 5 would run all ranks in the launcher, so both are set. Only the
/// launcher may exec, so there is no tree spawn.
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

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}
