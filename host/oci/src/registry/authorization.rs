//! The authorization of requests: basic credentials, or a token of the authorization server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Uri};
use serde::Deserialize;

use super::{Registry, RegistryError, short};
use crate::address::{may_be_asked, with_query};
use crate::challenge::{Challenge, challenge};
use crate::credentials::Credentials;
use crate::http::{Answer, Outgoing};

/// Size limit of a response of a token server, in bytes.
const TOKEN: u64 = 64 << 10;

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    /// Returns the required authorization. `None` if it needs credentials that are not configured.
    pub(super) async fn authorization(
        &self,
        answer: &Answer,
        what: &str,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        match challenge(answer.all(WWW_AUTHENTICATE.as_str())) {
            Some(Challenge::Basic) => Ok(self.credentials.as_ref().map(basic)),
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => {
                let asked = [("service", service), ("scope", scope)];
                let asked: Vec<_> = asked
                    .iter()
                    .filter_map(|(name, value)| Some((*name, value.as_deref()?)))
                    .collect();
                let token = self.token(&realm, &asked, what).await?;
                Ok(Some(secret(&format!("Bearer {token}"))))
            }
            None => Err(RegistryError::Challenge(self.host.clone())),
        }
    }

    /// Fetches a token from the authorization server of the registry. The request does not follow
    /// redirects, because it has credentials.
    async fn token(
        &self,
        realm: &str,
        asked: &[(&str, &str)],
        what: &str,
    ) -> Result<String, RegistryError> {
        let uri = realm.parse::<Uri>().ok();
        let uri = uri.filter(|uri| may_be_asked(uri, self.plain_http));
        let uri = uri.and_then(|uri| with_query(&uri, asked));
        let uri = uri.ok_or_else(|| RegistryError::Realm {
            host: self.host.clone(),
            realm: short(realm),
        })?;
        let credentials = self.credentials.as_ref();
        let shown = credentials.map(|credentials| (AUTHORIZATION, basic(credentials)));
        let request = Outgoing {
            method: Method::GET,
            uri,
            headers: shown.into_iter().collect(),
            body: Bytes::new(),
            follows: false,
        };
        let what = format!("a token for {what}");
        let answer = self.once(request, &what).await?;
        let answer = self.good(answer, &what).await?;
        let bytes = self.read(answer, &what, TOKEN).await?;
        let token: Option<Token> = serde_json::from_slice(&bytes).ok();
        let token = token.and_then(|token| token.token.or(token.access_token));
        let is_token = |token: &String| HeaderValue::from_str(token).is_ok();
        token
            .filter(is_token)
            .ok_or_else(|| RegistryError::Token(self.host.clone()))
    }
}

fn basic(credentials: &Credentials) -> HeaderValue {
    let Credentials { user, password } = credentials;
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    secret(&format!("Basic {encoded}"))
}

/// Creates a header that logs do not show.
fn secret(text: &str) -> HeaderValue {
    let mut value = HeaderValue::from_str(text).expect("base64 and checked tokens are text");
    value.set_sensitive(true);
    value
}
