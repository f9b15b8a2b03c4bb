//! Creates and deletes the IPUPartitions of Workloads that belong to no IPUJob, and answers their
//! admission checks.

use ipu_api::ipupartition::IPUPartition;
use ipu_runtime::requests;
use kube::Client;
use kube::api::Api;

use super::{RequestError, answer_check, failed_to};
use crate::native::slots::{Slot, partition};
use crate::native::{Reserved, Step};
use crate::objects::Workload;

/// Carries out a step.
pub(crate) async fn step(
    client: &Client,
    workload: Option<&Workload>,
    step: &Step,
) -> Result<(), RequestError> {
    match (step, workload) {
        (Step::Release(reserved), _) => release(client, reserved).await,
        (Step::Create(slots), Some(workload)) => create(client, workload, slots).await,
        (Step::AnswerCheck { name, answer }, Some(workload)) => {
            answer_check(client, workload, name, answer).await
        }
        (_, None) => Ok(()),
    }
}

/// Creates partitions. One that exists already was created a moment ago: its name contains a hash
/// of the Workload's UID.
async fn create(client: &Client, workload: &Workload, slots: &[Slot]) -> Result<(), RequestError> {
    let partitions: Api<IPUPartition> = Api::all(client.clone());
    for wanted in slots.iter().filter_map(|slot| partition(workload, slot)) {
        match partitions.create(&requests::post(), &wanted).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(source) => {
                return Err(failed_to("create an IPUPartition of the Workload")(source));
            }
        }
    }
    Ok(())
}

/// Deletes a partition. The version makes it fail if a Pod has claimed it meanwhile.
async fn release(client: &Client, reserved: &Reserved) -> Result<(), RequestError> {
    let partitions: Api<IPUPartition> = Api::all(client.clone());
    let (uid, version) = (reserved.uid.clone(), reserved.resource_version.clone());
    let parameters = requests::delete(Some(uid), Some(version));
    let deleted = partitions.delete(&reserved.name, &parameters).await;
    deleted
        .map(drop)
        .map_err(failed_to("delete an IPUPartition of the Workload"))
}
