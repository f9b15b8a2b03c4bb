//! Pure: the response to a REST client after an error of the API server.

use ipu_text::explain;
use kube::core::Status;

use super::problem::{Fault, Kind, Problem, shown};

/// The problem for an error. `action` is the failed action, such as `create the IPUPartition a`.
pub(super) fn problem(action: &str, error: &kube::Error) -> Problem {
    let kube::Error::Api(status) = error else {
        let detail = format!(
            "failed to {action}: the API server cannot be reached ({}); try again",
            shown(&explain(error))
        );
        return unavailable(detail, 0);
    };
    let said = format!("failed to {action}: {}", status.message);
    let retry = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    match status.code {
        400 => with_causes(Kind::Malformed, said, status),
        404 => Problem::new(Kind::Absent, said),
        409 => with_causes(Kind::Conflict, said, status),
        413 => Problem::new(Kind::TooLarge, said),
        422 => with_causes(Kind::Refused, said, status),
        // The user's token was valid, so this concerns the account of the proxy.
        401 | 403 => unavailable(
            format!("{said}; the proxy itself lacks a right, which an admin must grant it"),
            retry,
        ),
        _ => unavailable(format!("{said}; try again"), retry),
    }
}

/// The problem for an API server that did not answer in time.
pub(super) fn timeout(action: &str) -> Problem {
    unavailable(
        format!("failed to {action}: the API server did not answer in time; try again"),
        0,
    )
}

fn unavailable(detail: String, retry: u32) -> Problem {
    Problem::new(Kind::Unavailable, detail).with_header("retry-after", retry.max(1).to_string())
}

/// A refusal with the fields that the API server names.
fn with_causes(kind: Kind, detail: String, status: &Status) -> Problem {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let faults = causes
        .filter(|cause| !cause.field.is_empty())
        .map(|cause| Fault {
            field: cause.field.clone(),
            value: "refused".to_owned(),
            rule: cause.message.clone(),
            message: format!("{}: {}", cause.field, cause.message),
        });
    Problem {
        faults: faults.collect(),
        ..Problem::new(kind, detail)
    }
}
