//! Pure: the objects by which a launcher may execute commands in the workers of its job.

use super::Applicable;
use crate::build::access;
use crate::validate::{ValidJob, ValidLauncher};

/// Returns the objects to apply before the launcher's Pod. A ServiceAccount of the user is not changed: the Role is
/// bound to it.
pub fn rights(job: &ValidJob, launcher: &ValidLauncher) -> Vec<Applicable> {
    let has_own = launcher.service_account.is_none();
    let account = has_own.then(|| Applicable::ServiceAccount(access::service_account(job)));
    let rights = [
        Applicable::Role(access::role(job)),
        Applicable::RoleBinding(access::role_binding(job, launcher)),
    ];
    account.into_iter().chain(rights).collect()
}
