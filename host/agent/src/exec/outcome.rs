//! Pure: interprets the end of a remote command and errors of the API server.

use std::error::Error;
use std::io;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::UpgradeConnectionError;

/// Start of the API server's message about a request that the kubelet has not answered: an internal
/// error with the text of client-go's SPDY transport.
const NOT_SENT: &str = "Internal error occurred: error sending request: ";

/// The exit code is unknown, because the command never ran or was aborted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node could not run the command: {message}")]
pub struct NoExitCode {
    /// Message of the node.
    pub message: String,
}

/// The exit code of the remote command, from the final Status of the stream. The container runtime
/// reports a command that was ended by signal n with the code 128 + n.
pub fn exit_code(status: &Status) -> Result<u8, NoExitCode> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status
        .details
        .as_ref()
        .and_then(|details| details.causes.as_deref());
    let code = causes
        .unwrap_or_default()
        .iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .and_then(|cause| cause.message.as_deref()?.parse::<i64>().ok());
    match code {
        // A failure is never reported as a success, even with the exit code 0.
        Some(code) => Ok(u8::try_from(code)
            .ok()
            .filter(|code| *code > 0)
            .unwrap_or(255)),
        None => Err(NoExitCode {
            message: status
                .message
                .clone()
                .unwrap_or_else(|| "no reason was given".to_owned()),
        }),
    }
}

impl NoExitCode {
    /// Whether the API server could not reach the kubelet, so that the command has not started.
    /// Before Kubernetes 1.36, and for the kubelets of earlier versions, the API server opens the
    /// stream to its client first, and sends its request to the kubelet afterwards. A kubelet
    /// starts a command after its answer to this request.
    pub fn was_never_connected(&self) -> bool {
        self.message.starts_with(NOT_SENT)
    }
}

/// Whether a retry may help, if the request is idempotent.
pub fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        other => was_turned_away(other),
    }
}

/// Whether the request certainly had no effect, so that it can be repeated although it starts a
/// command: the server was unreachable, or it replied that it cannot serve the request now. An API
/// server may learn of the launcher's rights a moment after the launcher has started (403).
pub fn was_turned_away(error: &kube::Error) -> bool {
    let is_passing = |code: u16| matches!(code, 403 | 429 | 500..);
    match error {
        kube::Error::Api(status) => is_passing(status.code),
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
            is_passing(code.as_u16())
        }
        kube::Error::Service(cause) => never_connected(cause.as_ref()),
        kube::Error::HyperError(cause) => never_connected(cause),
        _ => false,
    }
}

fn never_connected(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
            );
        }
        cause = error.source();
    }
    false
}

/// Advice for users about an error of the API server, as the end of a sentence.
pub fn advice(error: &kube::Error) -> &'static str {
    let code = match error {
        kube::Error::Api(status) => status.code,
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
            code.as_u16()
        }
        _ => 0,
    };
    match code {
        401 => {
            "the Pod's service account token is not accepted; is its ServiceAccount still there?"
        }
        403 => {
            "its Role must allow `get` on pods, and `get` and `create` on pods/exec, for this Pod; \
             the operator creates the Role before the launcher: check whether it was changed. A launcher with the \
             ServiceAccount ipu-launchers reaches the workers of its own job only"
        }
        404 => "there is no such Pod; it may have been deleted, or its name is wrong",
        429 | 500.. => {
            "the API server or the kubelet was busy or unreachable, and the retries failed too"
        }
        _ => "is the API server reachable from this Pod (network policies, DNS)?",
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
    use serde_json::json;

    use super::{NoExitCode, advice, exit_code, is_transient, was_turned_away};

    fn ended(message: &str) -> Status {
        serde_json::from_value(json!({
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": "command terminated with non-zero exit code",
            "details": { "causes": [{ "reason": "ExitCode", "message": message }] },
        }))
        .unwrap()
    }

    #[test]
    fn the_exit_code_is_the_remote_one_and_a_failure_is_never_zero() {
        let success = serde_json::from_value(json!({ "status": "Success" })).unwrap();
        assert_eq!(exit_code(&success), Ok(0));
        for (message, code) in [
            ("1", 1),
            ("255", 255),
            ("137", 137),
            ("0", 255),
            ("-1", 255),
        ] {
            assert_eq!(exit_code(&ended(message)), Ok(code), "{message}");
        }
        assert_eq!(exit_code(&ended("99999")), Ok(255));
    }

    #[test]
    fn an_end_without_a_code_is_an_error_with_the_words_of_the_node() {
        let lost = serde_json::from_value(json!({
            "status": "Failure", "reason": "InternalError", "message": "no runtime",
        }))
        .unwrap();
        assert_eq!(exit_code(&lost).unwrap_err().message, "no runtime");
        assert_eq!(
            exit_code(&Status::default()).unwrap_err().message,
            "no reason was given"
        );
        assert!(exit_code(&ended("five")).is_err());
    }

    #[test]
    fn a_command_whose_node_was_not_reached_has_not_started() {
        let message = |message: &str| NoExitCode {
            message: message.to_owned(),
        };
        let refused = "Internal error occurred: error sending request: Post \
             \"https://10.0.0.2:10250/exec/default/a/main\": dial tcp 10.0.0.2:10250: connect: connection refused";
        assert!(message(refused).was_never_connected());
        for other in [
            "no runtime",
            "Internal error occurred: unable to upgrade connection: container not found",
            "the program: error sending request: ",
        ] {
            assert!(!message(other).was_never_connected(), "{other}");
        }
    }

    #[test]
    fn only_a_request_that_did_nothing_is_sent_again() {
        let api = |code: u16| {
            let status = kube::core::Status {
                code,
                ..kube::core::Status::default()
            };
            kube::Error::Api(Box::new(status))
        };
        let service =
            |kind: std::io::ErrorKind| kube::Error::Service(Box::new(std::io::Error::from(kind)));
        let refused = service(std::io::ErrorKind::ConnectionRefused);
        let cut = service(std::io::ErrorKind::ConnectionReset);
        for (error, transient, turned_away) in [
            (api(403), true, true),
            (api(404), false, false),
            (api(429), true, true),
            (api(503), true, true),
            (refused, true, true),
            (cut, true, false),
        ] {
            assert_eq!(is_transient(&error), transient, "{error}");
            assert_eq!(was_turned_away(&error), turned_away, "{error}");
        }
        assert!(advice(&api(403)).contains("pods/exec"));
        assert!(advice(&api(404)).contains("no such Pod"));
    }
}
