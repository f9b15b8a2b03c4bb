//! Pure: the parameters of writes to the API server. Each names the operator as the manager of the
//! fields.

use ipu_api::labels::FIELD_MANAGER;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};

/// Parameters of a creation or a replacement.
pub fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Parameters of a patch of any type. A server-side apply fails on a conflict.
pub fn patch() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER)
}

/// Parameters of a deletion, in the background, of the object with this UID and version alone.
/// `None`: of any.
pub fn delete(uid: Option<String>, resource_version: Option<String>) -> DeleteParams {
    DeleteParams::background().preconditions(Preconditions {
        uid,
        resource_version,
    })
}
