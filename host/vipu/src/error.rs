//! Errors of calls to V-IPU controllers, by the action that they require of the caller.

use std::error::Error;
use std::io;
use std::sync::Arc;

use ipu_text::{explain, sanitize};
use tonic::{Code, ConnectError, Status};

use super::auth::AuthError;

/// Longest text of a server or proxy that an error keeps, in bytes.
const MESSAGE_MAX: usize = 512;

/// Error of a call to a V-IPU controller without a valid answer. The messages do not repeat the
/// name of the controller, which is shown with them.
///
/// Graphcore does not document which code a server sends in which case. After any failed create,
/// remove or reset, `VipuClient::lookup` reads the state. The variants only indicate the
/// probability that the call was carried out.
#[derive(Debug, thiserror::Error)]
pub enum VipuError {
    /// The controller's address is not valid. Nothing was sent; correct `controllers.yaml`.
    #[error("its address is not valid")]
    Address(#[source] tonic::transport::Error),
    /// A status names a controller that is not in the admin's list, with an address that differs
    /// from its name. Nothing was sent: a status written by hand must not send the credentials to
    /// another server.
    #[error(
        "the status gives it the address {address:?}, which is not its name, and it is not in \
         the admin's list; list it, or correct host and port in the status"
    )]
    UnlistedAddress {
        /// Host and port of the controller in the status.
        address: String,
    },
    /// The admin's certificates or credentials cannot be used. Nothing was sent; fix the file or
    /// the option that the source names.
    #[error(
        "the certificates or credentials for V-IPU controllers cannot be used; the admin has to fix the Secrets of \
         vipuProxy.vipu"
    )]
    Auth(#[source] Arc<AuthError>),
    /// The connection failed, so nothing was sent. Retry later.
    #[error("it cannot be reached{}", of_tls(.0))]
    Unreachable(#[source] Box<Status>),
    /// The call was sent and may have been carried out, now or later. Look up the state.
    #[error("{method} got no answer")]
    OutcomeUnknown {
        /// The method that was called.
        method: &'static str,
        /// The status instead of an answer.
        #[source]
        source: Box<Status>,
    },
    /// The controller refused the call.
    #[error("it refused {method}: {message} ({code:?})")]
    Refused {
        /// The method that was called.
        method: &'static str,
        /// The code that the server chose.
        code: Code,
        /// Message of the server.
        message: String,
    },
    /// The controller refused the certificate, user id or API key of the operator. Nothing was
    /// done; the admin has to fix it.
    #[error(
        "it denies the operator {method}; the admin has to fix the Secrets of vipuProxy.vipu, and \
         free capacity is not the cause: {message} ({code:?})"
    )]
    Denied {
        /// The method that was called.
        method: &'static str,
        /// `Unauthenticated` or `PermissionDenied`.
        code: Code,
        /// Message of the server.
        message: String,
    },
    /// The controller shows no partition of this id, which was requested under another user id: it
    /// may be hidden from the current one.
    #[error(
        "it shows no such partition, but the partition was requested under another V-IPU user id, and may be \
         hidden from this one; restore the former user id, or remove the partition with it and set \
         graphcore.ai/force-release"
    )]
    OtherAccount,
    /// The answer is about another partition than the request. Look up the state; the owner of the
    /// other id is not known.
    #[error("its answer to {method} is about partition {answered:?}, not {asked:?}")]
    OtherPartition {
        /// The method that was called.
        method: &'static str,
        /// The requested id.
        asked: String,
        /// The id in the answer, truncated.
        answered: String,
    },
    /// The answer lacks a part that every answer to this method has.
    #[error("its answer to {method} has no {missing}")]
    Incomplete {
        /// The method that was called.
        method: &'static str,
        /// Name of the missing part.
        missing: &'static str,
    },
    /// A read of the controller has not ended yet, and the caller does not wait for it. Retry
    /// later.
    #[error("it has not answered yet")]
    NotAnswered,
}

impl VipuError {
    /// Whether the operator may lack the right to see the partition. Then an empty result does not
    /// prove that the partition is gone.
    pub fn is_denial(&self) -> bool {
        matches!(self, VipuError::Denied { .. } | VipuError::OtherAccount)
    }

    /// Whether the call never reached the controller, so that it has no effect, now or later.
    pub fn is_unsent(&self) -> bool {
        match self {
            VipuError::Address(_)
            | VipuError::UnlistedAddress { .. }
            | VipuError::Auth(_)
            | VipuError::Unreachable(_) => true,
            VipuError::OutcomeUnknown { .. }
            | VipuError::Refused { .. }
            | VipuError::Denied { .. }
            | VipuError::OtherAccount
            | VipuError::OtherPartition { .. }
            | VipuError::Incomplete { .. }
            | VipuError::NotAnswered => false,
        }
    }

    /// Whether the controller reports a lack of free IPUs: `ResourceExhausted`, as gRPC defines it.
    /// Any other refusal may concern this request alone.
    pub fn is_exhausted(&self) -> bool {
        matches!(
            self,
            VipuError::Refused {
                code: Code::ResourceExhausted,
                ..
            }
        )
    }

    /// Whether the controller cannot be reached, or did not answer the call in time. The next call
    /// may take as long.
    pub fn is_unanswered(&self) -> bool {
        match self {
            VipuError::Unreachable(_) | VipuError::NotAnswered => true,
            VipuError::OutcomeUnknown { source, .. } => {
                source.source().is_some() || source.code() == Code::DeadlineExceeded
            }
            VipuError::Address(_)
            | VipuError::UnlistedAddress { .. }
            | VipuError::Auth(_)
            | VipuError::Refused { .. }
            | VipuError::Denied { .. }
            | VipuError::OtherAccount
            | VipuError::OtherPartition { .. }
            | VipuError::Incomplete { .. } => false,
        }
    }

    /// Converts a status to an error.
    ///
    /// A status with a source comes from this side: the connection failed, or the call was aborted.
    /// A status without a source comes from the server. If its code means a failure half-way, of
    /// the server or of a proxy before it, the outcome is open.
    pub(super) fn from_status(method: &'static str, status: Status) -> Self {
        let status = sanitized(status);
        if is_caused_by::<ConnectError>(&status) {
            return VipuError::Unreachable(Box::new(status));
        }
        if status.source().is_some() || leaves_outcome_open(status.code()) {
            return VipuError::OutcomeUnknown {
                method,
                source: Box::new(status),
            };
        }
        let code = status.code();
        let message = status.message().to_owned();
        match code {
            Code::Unauthenticated | Code::PermissionDenied => VipuError::Denied {
                method,
                code,
                message,
            },
            _ => VipuError::Refused {
                method,
                code,
                message,
            },
        }
    }

    /// The error with its innermost cause, for a waiting reason.
    pub fn reason(&self) -> String {
        let cause = match self {
            VipuError::Auth(source) => explain(&**source),
            VipuError::Address(source) => root(source),
            VipuError::Unreachable(source) => {
                tls_failure(source).unwrap_or_else(|| root(&**source))
            }
            VipuError::OutcomeUnknown { source, .. } => root(&**source),
            VipuError::UnlistedAddress { .. }
            | VipuError::Refused { .. }
            | VipuError::Denied { .. }
            | VipuError::OtherAccount
            | VipuError::OtherPartition { .. }
            | VipuError::Incomplete { .. }
            | VipuError::NotAnswered => return self.to_string(),
        };
        format!("{self}: {cause}")
    }
}

/// The end of the message for a failed connection.
fn of_tls(status: &Status) -> &'static str {
    match tls_failure(status) {
        Some(_) => " over TLS; the admin has to fix vipuProxy.vipu.tls",
        None => "",
    }
}

/// A status with a sanitized message. Of a status from the server, only code and message are kept,
/// because its metadata may contain anything. A status from this side is described by its innermost
/// cause.
fn sanitized(status: Status) -> Status {
    if status.source().is_some() {
        return status;
    }
    Status::new(status.code(), sanitize(status.message(), MESSAGE_MAX))
}

/// Whether a server that sends `code` may have carried out the call, or may still do so.
fn leaves_outcome_open(code: Code) -> bool {
    match code {
        Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => false,
    }
}

/// The error itself and all its causes, outermost first.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn is_caused_by<E: Error + 'static>(status: &Status) -> bool {
    causes(status).any(<dyn Error + 'static>::is::<E>)
}

/// The TLS failure among the causes, if there is one. An I/O error contains it without naming it as
/// its source.
fn tls_failure(status: &Status) -> Option<String> {
    causes(status).find_map(|cause| {
        let inner = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let failure = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        failure.map(|failure| sanitize(&failure.to_string(), MESSAGE_MAX))
    })
}

/// Message of the innermost cause: "connection refused" is more precise than "transport error".
/// Some contain text that the peer sent when it closed the connection.
fn root(error: &(dyn Error + 'static)) -> String {
    let innermost = causes(error).last().unwrap_or(error);
    let words = match innermost.downcast_ref::<Status>() {
        Some(status) => format!("{} ({:?})", status.message(), status.code()),
        None => innermost.to_string(),
    };
    sanitize(&words, MESSAGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_no_is_a_refusal_and_its_trouble_leaves_the_outcome_open() {
        for number in 1..=16 {
            let code = Code::from_i32(number);
            let error = VipuError::from_status("CreatePartition", Status::new(code, "m"));
            let open = matches!(error, VipuError::OutcomeUnknown { .. });
            let expected = [1, 2, 4, 10, 13, 14, 15].contains(&number);
            assert_eq!(open, expected, "{code:?}: {error}");
            let denied = [7, 16].contains(&number);
            assert_eq!(matches!(error, VipuError::Denied { .. }), denied);
            let refused = !expected && !denied;
            assert_eq!(matches!(error, VipuError::Refused { .. }), refused);
            let exhausted = number == 8;
            assert_eq!(error.is_exhausted(), exhausted, "{code:?}");
            assert!(!error.is_unsent(), "{code:?}: the server has answered");
            assert_eq!(error.is_unanswered(), number == 4, "{code:?}");
        }
    }

    #[test]
    fn credentials_that_are_not_accepted_differ_from_a_lack_of_capacity() {
        let status = Status::new(Code::Unauthenticated, "unknown API key");
        let error = VipuError::from_status("CreatePartition", status);
        assert_eq!(
            error.reason(),
            "it denies the operator CreatePartition; the admin has to fix the Secrets of vipuProxy.vipu, \
             and free capacity is not the cause: unknown API key (Unauthenticated)"
        );
    }

    #[test]
    fn whatever_a_server_says_its_words_fit() {
        let words = format!("\u{1b}[31m\u{7}\r\n\0\u{202e}{}", "é".repeat(1 << 20));
        let mut errors: Vec<_> = (1..=16)
            .map(|number| {
                let mut status = Status::new(Code::from_i32(number), &words);
                let header = "x".repeat(1 << 16).parse().unwrap();
                status.metadata_mut().insert("x-words", header);
                VipuError::from_status("CreatePartition", status)
            })
            .collect();
        let mut status = Status::new(Code::Unknown, "h2 protocol error");
        status.set_source(Arc::new(io::Error::other(words)));
        errors.push(VipuError::from_status("CreatePartition", status));
        for error in errors {
            let reason = error.reason();
            assert!(reason.len() < 2 * MESSAGE_MAX, "{}", reason.len());
            assert!(reason.chars().all(ipu_text::is_plain), "{reason}");
        }
    }

    #[test]
    fn a_status_made_on_this_side_is_no_refusal_whatever_its_code() {
        let mut status = Status::new(Code::ResourceExhausted, "h2 protocol error");
        status.set_source(Arc::new(std::io::Error::other("broken pipe")));
        let error = VipuError::from_status("CreatePartition", status);
        assert!(matches!(error, VipuError::OutcomeUnknown { .. }));
        assert!(error.is_unanswered() && !error.is_unsent() && !error.is_exhausted());
        assert_eq!(error.reason(), "CreatePartition got no answer: broken pipe");
    }

    #[test]
    fn a_connection_that_was_never_made_sent_nothing() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(Box::new(refused))));
        let error = VipuError::from_status("CreatePartition", status);
        assert!(matches!(error, VipuError::Unreachable(_)) && error.is_unanswered());
        assert!(error.is_unsent());
        assert_eq!(error.reason(), "it cannot be reached: connection refused");
    }
}
