//! Pure: shows an error with its causes in one line.

use std::error::Error;

/// Formats an error and all its causes in one line, each once.
///
/// Many libraries repeat the cause in their own text; such a cause is not repeated. Of a refusal by
/// the API server, only its message is included, without the other fields that kube shows.
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
    fn a_refusal_of_the_api_server_keeps_its_message() {
        let status = kube::core::Status::failure("pods is forbidden", "Forbidden").with_code(403);
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(explain(&error), "pods is forbidden (403)");
    }

    #[test]
    fn every_cause_is_said_once() {
        let outer = |said| Outer {
            said,
            cause: io::Error::other("disk full"),
        };
        assert_eq!(
            explain(&outer("")),
            "failed to do the outer thing: disk full"
        );
        assert_eq!(
            explain(&outer(": disk full")),
            "failed to do the outer thing: disk full"
        );
    }
}
