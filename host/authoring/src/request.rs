//! Reads the request for a component.

use std::path::Path;

use ipu_guest_host::OfflineGuest;
use ipu_guest_host::policy_request::PolicyRequest;

use super::document::document;
use super::{PolicyCliError, unusable};

/// Reads the request from a file. Without a file it is the sample request of the operator.
pub(super) fn read_request(
    guest: &OfflineGuest,
    file: Option<&Path>,
) -> Result<PolicyRequest, PolicyCliError> {
    let Some(file) = file else {
        return Ok(guest.sample_request());
    };
    let value = document(file)?;
    PolicyRequest::parse(guest.hook(), value).map_err(unusable(file, "is no request"))
}
