//! The agent: one small static program that works in any container, whatever its C library.
//!
//! An init container copies it into the Pods of a job (`install`). There it is PID 1 of the workers
//! of a launcher job (`idle`) and carries mpirun's remote commands to them (`exec`). It is built
//! without the feature `operator`, so that nothing of the two processes in the cluster is in it.

pub mod exec;
pub mod idle;
pub mod install;

use std::error::Error;

/// Annotation of a Pod: the container that `kubectl exec`, `kubectl logs` and the agent mean where
/// none is named (kubectl's own).
pub const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// Name of worker `index` of a job; the index counts over all instances.
pub fn worker(job: &str, index: u32) -> String {
    format!("{job}-worker-{index}")
}

/// Exit code for everything that went wrong in the agent itself; `ssh` does the same, and mpirun
/// was written for `ssh`.
pub const FAILED: u8 = 255;

/// An error and all its causes in one line, each said once.
///
/// Many libraries repeat the cause in their own text; such a cause is not written again. Of an API
/// server's refusal only its own words are given, not all the fields that kube shows.
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let refusal = refusal(error);
        let words = refusal.clone().unwrap_or_else(|| error.to_string());
        if !text.contains(&words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        next = if refusal.is_some() {
            None
        } else {
            error.source()
        };
    }
    text
}

fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
    match error.downcast_ref::<kube::Error>().or_else(boxed)? {
        kube::Error::Api(status) => Some(format!("{} ({})", status.message, status.code)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::explain;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to do the outer thing{said}")]
    struct Outer {
        said: &'static str,
        #[source]
        cause: io::Error,
    }

    #[test]
    fn a_refusal_of_the_api_server_is_told_in_its_words() {
        let status = kube::core::Status::failure("pods is forbidden", "Forbidden").with_code(403);
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(explain(&error), "pods is forbidden (403)");
    }

    #[test]
    fn every_cause_is_said_once() {
        let outer = |said| Outer {
            said,
            cause: io::Error::other("no room"),
        };
        assert_eq!(explain(&outer("")), "failed to do the outer thing: no room");
        assert_eq!(
            explain(&outer(": no room")),
            "failed to do the outer thing: no room"
        );
    }
}
