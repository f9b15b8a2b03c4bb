//! The caller of a request: token and address.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use ipu_ports::serve::address;

use super::bearer;
use super::problem::Problem;

/// The caller of a request.
pub struct Caller {
    authorization: Vec<HeaderValue>,
    address: IpAddr,
}

impl Caller {
    /// The token.
    pub(super) fn token(&self) -> Result<&str, Problem> {
        bearer::token(self.authorization.iter().map(HeaderValue::as_bytes))
    }

    /// The address that the request came from.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let lines = parts.headers.get_all(header::AUTHORIZATION);
        Ok(Self {
            // Two headers are invalid already.
            authorization: lines.iter().take(2).cloned().collect(),
            address: address(&parts.extensions),
        })
    }
}
