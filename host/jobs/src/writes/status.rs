//! Writes the status of an IPUJob. [`crate::status`] builds it; `ipu_kueue` writes
//! `status.admission`.

use ipu_api::labels;
use kube::api::{Api, PostParams};
use kube::core::Request;
use serde_json::Value;

use super::{WriteError, record_write};
use crate::raw::RawJob;
use crate::views::View;

/// Replaces the status of an IPUJob, given the whole job with the version that was read.
/// Server-side apply would require a valid object, and the status of an invalid one must report the
/// reason. A merge patch costs the API server a third more.
pub async fn replace(
    jobs: &Api<RawJob>,
    name: &str,
    object: &Value,
    view: &View<RawJob>,
) -> Result<Option<RawJob>, WriteError> {
    let parameters = PostParams {
        field_manager: Some(format!("{}/status", labels::FIELD_MANAGER)),
        ..PostParams::default()
    };
    let body = object.to_string().into_bytes();
    let sent = Request::new(jobs.resource_url())
        .replace_subresource("status", name, &parameters, body)
        .map_err(kube::Error::BuildRequest);
    let sent = match sent {
        Ok(request) => jobs.clone().into_client().request::<RawJob>(request).await,
        Err(error) => Err(error),
    };
    record_write("write the status of", name, sent.map(Some), view)
}
