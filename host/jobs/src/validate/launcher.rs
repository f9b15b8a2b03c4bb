//! Pure: validates the launcher of a parallel or interactive job.

use guest_validation::rules::Violation;
use ipu_api::ipujob::IPUJobSpec;
use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};

use super::{DEFAULT_ACCOUNT, ValidateError};

/// The launcher of a parallel job, which runs a command, or of an interactive job, which waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidLauncher {
    /// The command and its arguments. Empty for an interactive job.
    pub command: Vec<String>,
    /// Environment variables in addition to those of the workers' first container.
    pub env: Vec<EnvVar>,
    /// Duration of an interactive job in seconds, from the launcher's start. `None` with a command.
    pub interactive_seconds: Option<u32>,
    /// Requests and limits. `None` uses the admin's default.
    pub resources: Option<ResourceRequirements>,
    /// The user's ServiceAccount for the launcher, which is never `default`. `None` uses an account
    /// of the job.
    pub service_account: Option<String>,
}

/// Validates `launcher` or `interactive`. Returns `None` for a job without either.
pub(super) fn launcher(spec: IPUJobSpec) -> Result<Option<ValidLauncher>, ValidateError> {
    match (spec.launcher, spec.interactive) {
        (Some(launcher), _) if launcher.command.is_empty() => Err(violation(
            "spec.launcher.command",
            "is empty; write the command that starts the job, such as [mpirun, …]",
        )),
        (Some(launcher), _) => {
            // Rules refuse `default` at the start. A job that passed them by must not give rights
            // to other Pods either.
            let is_own = |name: &String| !name.is_empty() && name != DEFAULT_ACCOUNT;
            Ok(Some(ValidLauncher {
                command: launcher.command,
                env: launcher.env.unwrap_or_default(),
                interactive_seconds: None,
                resources: launcher.resources,
                service_account: launcher.service_account_name.filter(is_own),
            }))
        }
        (None, Some(interactive)) => {
            let seconds = u32::try_from(interactive.ttl).map_err(|_| {
                violation(
                    "spec.interactive.ttl",
                    "is negative; say how many seconds the interactive job lasts, such as 3600",
                )
            })?;
            Ok(Some(ValidLauncher {
                interactive_seconds: Some(seconds),
                ..ValidLauncher::default()
            }))
        }
        (None, None) => Ok(None),
    }
}

fn violation(field: &str, message: &str) -> ValidateError {
    let (field, message) = (field.to_owned(), message.to_owned());
    ValidateError::Broken(vec![Violation { field, message }])
}
