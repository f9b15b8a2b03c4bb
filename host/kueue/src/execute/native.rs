//! Creates and deletes the IPUPartitions of Workloads that belong to no IPUJob, and answers their admission checks.

use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};

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

/// Creates partitions. One that exists already was created a moment ago: its name contains a hash of the Workload's UID.
async fn create(client: &Client, workload: &Workload, slots: &[Slot]) -> Result<(), RequestError> {
    let partitions: Api<IPUPartition> = Api::all(client.clone());
    let parameters = PostParams {
        field_manager: Some(labels::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    for wanted in slots.iter().filter_map(|slot| partition(workload, slot)) {
        match partitions.create(&parameters, &wanted).await {
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
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(reserved.uid.clone()),
            resource_version: Some(reserved.resource_version.clone()),
        }),
        ..DeleteParams::background()
    };
    let deleted = partitions.delete(&reserved.name, &parameters).await;
    deleted
        .map(drop)
        .map_err(failed_to("delete an IPUPartition of the Workload"))
}
