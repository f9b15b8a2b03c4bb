//! Plain HTTP to the small servers of a run: probes of the operator, the simulators' control ports.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The request cannot be built.
    #[error("failed to build the request {method} {url}")]
    Build {
        /// The method.
        method: String,
        /// The address.
        url: String,
        /// The cause.
        #[source]
        source: http::Error,
    },
    /// There was no answer.
    #[error("failed to get an answer to {method} {url}")]
    Send {
        /// The method.
        method: String,
        /// The address.
        url: String,
        /// The cause.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// The answer broke off.
    #[error("failed to read the answer to {method} {url}")]
    Read {
        /// The method.
        method: String,
        /// The address.
        url: String,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// The answer has an error status.
    #[error("{method} {url} was answered with {status}: {body}")]
    Status {
        /// The method.
        method: String,
        /// The address.
        url: String,
        /// The status.
        status: u16,
        /// The body of the answer.
        body: String,
    },
}

/// Sends one request with a JSON body, and returns the body of a successful answer.
pub async fn request(method: &str, url: &str, json: &str) -> Result<String, HttpError> {
    let (method, url) = (method.to_owned(), url.to_owned());
    let request = http::Request::builder()
        .method(method.as_str())
        .uri(&url)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(json.to_owned())));
    let request = match request {
        Ok(request) => request,
        Err(source) => {
            return Err(HttpError::Build {
                method,
                url,
                source,
            });
        }
    };
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let answer = match client.request(request).await {
        Ok(answer) => answer,
        Err(source) => {
            return Err(HttpError::Send {
                method,
                url,
                source,
            });
        }
    };
    let status = answer.status();
    let body = match answer.into_body().collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(source) => {
            return Err(HttpError::Read {
                method,
                url,
                source,
            });
        }
    };
    if status.is_success() {
        return Ok(body);
    }
    Err(HttpError::Status {
        method,
        url,
        status: status.as_u16(),
        body,
    })
}
