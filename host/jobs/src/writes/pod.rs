//! Creates Pods, and deletes those whose agent the API server drops.

use ipu_api::uid::Uid;
use ipu_runtime::image_volume;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;

use super::classify::object_name;
use super::{CreateResult, Creation, Obstacle, delete, post};
use crate::plan::Deletion;
use crate::views::View;

/// Creates a Pod of a job of this owner. A Pod without its agent would fail when it starts, and its
/// job with it: it is deleted at once, and counts as refused.
pub async fn create(
    pods: &Api<Pod>,
    pod: &Pod,
    owner: &str,
    job: Uid,
    view: &View<Pod>,
) -> CreateResult {
    let created = match post(pods, pod, owner, view).await? {
        Creation::Created(created) => created,
        Creation::Not(obstacle) => return Ok(obstacle),
    };
    if !image_volume::is_dropped(pod, &created) {
        return Ok(None);
    }
    let deletion = Deletion {
        name: created.name_any(),
        uid: created.uid().unwrap_or_default(),
    };
    delete(pods, &deletion, job, view).await?;
    Ok(Some(Obstacle::Refused {
        object: object_name(pod),
        reason: image_volume::DROPPED.to_owned(),
    }))
}
