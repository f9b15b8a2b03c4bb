//! Pure: builds the IPUPartition of one instance.

use ipu_api::ipupartition::{IPUPartition, IPUPartitionSpec, OwnerMetadata, PartitionOptions};
use ipu_api::owner_metadata;
use ipu_api::partition_request::new_partition;

use super::job_labels;
use crate::pod_set;
use crate::validate::ValidJob;

/// Builds the IPUPartition of an instance. Its Pods could not start on the V-IPU controllers in
/// `avoided`.
pub fn partition(job: &ValidJob, instance: u32, avoided: &[String]) -> IPUPartition {
    let replicas = job.size.replicas();
    let spec = IPUPartitionSpec {
        owner: job.partition_owner(),
        slot: instance,
        ipus: job.size.ipus,
        gcds: job.size.workers,
        options: PartitionOptions {
            replicas: (replicas != job.size.workers).then_some(replicas),
            reconfigurable: job.reconfigurable,
            // The launcher starts when the workers of all instances are Ready.
            gang_size: (job.launcher.is_some() && job.instances > 1).then_some(job.instances),
            pinned: is_pinned(job),
            relocatable: job.relocatable,
            node_selector: pod_set::worker_node_selector(job),
            avoid_controllers: avoided.to_vec(),
            scheduling: pod_set::worker_scheduling(job),
        },
        owner_metadata: OwnerMetadata {
            labels: owner_metadata::bounded_labels(&job.labels),
            annotations: owner_metadata::bounded_annotations(&job.annotations),
            priority_class_name: job.template.spec.priority_class_name.clone(),
        },
        reset_generation: 0,
    };
    new_partition(spec, Some(job_labels(job)))
}

/// Whether the job's partitions are pinned, because its run could not restart elsewhere.
pub fn is_pinned(job: &ValidJob) -> bool {
    job.launcher.is_some() && !job.restart.restarts_lost_runs()
}
