//! Pure: the authentication challenge of a registry.

use http_auth::ChallengeParser;

/// The authentication that a registry requires in `WWW-Authenticate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User and password with each request.
    Basic,
    /// A token of an authorization server.
    Bearer {
        /// Address of the server.
        realm: String,
        /// The service of the token.
        service: Option<String>,
        /// The scope of the token.
        scope: Option<String>,
    },
}

/// Returns the first supported challenge in the values of `WWW-Authenticate`. It prefers a token,
/// with which the password is sent only once.
pub(super) fn challenge<'a>(values: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = None;
    for value in values {
        for challenge in ChallengeParser::new(value).map_while(Result::ok) {
            let parameter = |name: &str| {
                let mut all = challenge.params.iter();
                let found = all.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
                Some(found.1.to_unescaped())
            };
            if challenge.scheme.eq_ignore_ascii_case("bearer") {
                return Some(Challenge::Bearer {
                    realm: parameter("realm")?,
                    service: parameter("service"),
                    scope: parameter("scope"),
                });
            }
            if challenge.scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Challenge::Basic);
            }
        }
    }
    basic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenges_of_registries_are_read() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.to_owned(),
                service: service.map(str::to_owned),
                scope: scope.map(str::to_owned),
            })
        };
        for (value, read) in [
            (
                r#"Bearer realm="https://auth.io/token",service="r.io",scope="repository:a/b:pull,push""#,
                bearer(
                    "https://auth.io/token",
                    Some("r.io"),
                    Some("repository:a/b:pull,push"),
                ),
            ),
            (
                r#"bearer Realm="https://a.io/t""#,
                bearer("https://a.io/t", None, None),
            ),
            (r#"Basic realm="Registry Realm""#, Some(Challenge::Basic)),
            (
                r#"Basic realm="r", Bearer realm="https://a.io/t""#,
                bearer("https://a.io/t", None, None),
            ),
            (r#"Bearer service="r.io""#, None),
            ("Negotiate", None),
            ("", None),
            ("\"", None),
        ] {
            assert_eq!(challenge([value].into_iter()), read, "{value}");
        }
    }
}
