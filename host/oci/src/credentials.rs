//! Pure: credentials for a registry, from the configuration of `docker login` and Secrets of the
//! type `kubernetes.io/dockerconfigjson`.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::reference::Reference;

/// User and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The password or a token.
    pub password: String,
}

/// Failure to read credentials. No error has a value, which can be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// It is not a configuration of Docker.
    #[error(
        "it is not JSON with `auths`, as `docker login` and `kubectl create secret docker-registry` write it"
    )]
    Json,
    /// An entry is invalid.
    #[error(
        "its entry for {0} has neither username and password nor `auth`, the base64 of user:password; \
         credential helpers (credsStore, credHelpers) are not supported"
    )]
    Entry(String),
    /// There is no entry for the registry.
    #[error("it has no entry for {wanted} (its entries: {there}); add an entry for {wanted}")]
    Other {
        /// The registry.
        wanted: String,
        /// The registries with entries.
        there: String,
    },
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

impl Credentials {
    /// Finds the credentials for a module in a configuration of Docker. The most specific entry
    /// wins: for the repository, for a parent of it, or for the whole registry.
    pub fn find(config: &[u8], reference: &Reference) -> Result<Self, CredentialsError> {
        let document = Document::parse(config)?;
        document.find(reference)?.ok_or_else(|| {
            let names: Vec<_> = document.auths.into_keys().take(5).collect();
            CredentialsError::Other {
                wanted: reference.registry().to_owned(),
                there: if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                },
            }
        })
    }

    /// As [`Self::find`]; `None` without an entry.
    pub fn find_any(
        config: &[u8],
        reference: &Reference,
    ) -> Result<Option<Self>, CredentialsError> {
        Document::parse(config)?.find(reference)
    }
}

impl Document {
    fn parse(config: &[u8]) -> Result<Self, CredentialsError> {
        serde_json::from_slice(config).map_err(|_| CredentialsError::Json)
    }

    fn find(&self, reference: &Reference) -> Result<Option<Credentials>, CredentialsError> {
        let fitting = self
            .auths
            .iter()
            .filter_map(|(name, entry)| Some((fits(name, reference)?, name, entry)));
        let Some((_, name, entry)) = fitting.max_by_key(|(length, ..)| *length) else {
            return Ok(None);
        };
        let read = entry.read();
        read.map(Some)
            .ok_or_else(|| CredentialsError::Entry(name.clone()))
    }
}

impl Entry {
    fn read(&self) -> Option<Credentials> {
        if !self.username.is_empty() {
            return Some(Credentials {
                user: self.username.clone(),
                password: self.password.clone(),
            });
        }
        let bytes = STANDARD.decode(self.auth.trim()).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (user, password) = text.split_once(':')?;
        (!user.is_empty()).then(|| Credentials {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }
}

/// Returns how specific an entry is for a reference. `None` if it does not match.
fn fits(entry: &str, reference: &Reference) -> Option<usize> {
    let bare = ["https://", "http://"]
        .iter()
        .find_map(|scheme| entry.strip_prefix(scheme))
        .unwrap_or(entry);
    let (host, path) = match bare.split_once('/') {
        Some((host, path)) => (host, path.trim_end_matches('/')),
        None => (bare, ""),
    };
    if hub(host) != hub(reference.registry()) {
        return None;
    }
    // What `docker login` writes for the whole registry.
    if matches!(path, "" | "v1" | "v2") {
        return Some(0);
    }
    let rest = reference.repository().strip_prefix(path)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(path.len())
}

/// Docker Hub has three names.
fn hub(host: &str) -> &str {
    match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials(…)")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(config: &serde_json::Value, reference: &str) -> Result<String, CredentialsError> {
        let reference = reference.parse().unwrap();
        let found = Credentials::find(config.to_string().as_bytes(), &reference)?;
        Ok(format!("{}:{}", found.user, found.password))
    }

    fn auth(text: &str) -> serde_json::Value {
        json!({ "auth": STANDARD.encode(text) })
    }

    #[test]
    fn the_entry_that_names_most_of_the_reference_is_taken() {
        let config = json!({"auths": {
            "r.io": auth("whole:a:b"),
            "https://r.io:5000/v2/": auth("port:p"),
            "r.io/team": {"username": "team", "password": "p"},
            "r.io/team/policy": auth("policy:p"),
            "https://index.docker.io/v1/": auth("hub:p"),
        }});
        for (reference, credentials) in [
            ("r.io/other:1", "whole:a:b"),
            ("r.io/team2/x:1", "whole:a:b"),
            ("r.io:5000/x:1", "port:p"),
            ("r.io/team/x:1", "team:p"),
            ("r.io/team/policy:1", "policy:p"),
            ("docker.io/team/x:1", "hub:p"),
        ] {
            assert_eq!(
                found(&config, reference).as_deref(),
                Ok(credentials),
                "{reference}"
            );
        }
    }

    #[test]
    fn missing_fields_are_named_and_no_secret_is_shown() {
        let config = json!({"auths": {"r.io": auth("secret"), "s.io": {}, "t.io": auth("a:b")}});
        let entry = |name: &str| Err(CredentialsError::Entry(name.to_owned()));
        assert_eq!(found(&config, "r.io/x:1"), entry("r.io"));
        assert_eq!(found(&config, "s.io/x:1"), entry("s.io"));
        let other = found(&config, "u.io/x:1").unwrap_err().to_string();
        assert!(
            other.contains("no entry for u.io (its entries: r.io, s.io, t.io)"),
            "{other}"
        );
        let none = found(&json!({}), "u.io/x:1").unwrap_err().to_string();
        assert!(none.contains("(its entries: none)"), "{none}");
        assert_eq!(found(&json!([1]), "u.io/x:1"), Err(CredentialsError::Json));
        let credentials = Credentials {
            user: "a".into(),
            password: "b".into(),
        };
        assert_eq!(format!("{credentials:?}"), "Credentials(…)");
    }
}
