//! Pure: references to modules in registries, such as `registry.example.com/team/policy:1.2`.

use std::fmt;
use std::str::FromStr;

/// Longest name of a repository.
const REPOSITORY: usize = 255;

/// Longest tag.
const TAG: usize = 128;

/// A reference to a manifest: registry, repository, and tag or digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// Reason why a text is not a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The registry is not a host.
    #[error(
        "{0:?} does not begin with the host of a registry and a slash; no registry is assumed, so \
         write it out, as in registry.example.com/team/policy:1.2 or docker.io/team/policy:1.2"
    )]
    Registry(String),
    /// The repository is invalid.
    #[error(
        "{0:?} is no repository: it has lower-case letters and digits, joined by single `.`, `_` or \
         by `-`, in parts with slashes between them, and at most 255 characters"
    )]
    Repository(String),
    /// The tag is invalid.
    #[error(
        "{0:?} is no tag: it has letters, digits, `_`, `.` and `-`, begins with none of the last two, \
         and has at most 128 characters"
    )]
    Tag(String),
    /// The digest is invalid.
    #[error("{0:?} is no digest: it has sha256: and 64 hexadecimal digits in lower case")]
    Digest(String),
    /// Neither tag nor digest.
    #[error(
        "{0:?} names neither a tag nor a digest; add one, as in registry.example.com/team/policy:1.2"
    )]
    Open(String),
}

impl Reference {
    /// Returns the host of the registry, with its port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the host of the API. That of Docker Hub differs from its name.
    pub fn host(&self) -> &str {
        match self.registry.as_str() {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            other => other,
        }
    }

    /// Returns the repository.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the digest, otherwise the tag. The digest takes precedence, because a tag can move.
    ///
    /// # Panics
    /// Never: a reference has at least one of them.
    pub fn version(&self) -> &str {
        let named = self.digest.as_deref().or(self.tag.as_deref());
        named.expect("one of them is there, or it would not have been parsed")
    }

    /// Returns the tag.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest of the manifest.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let no_registry = || ReferenceError::Registry(text.to_owned());
        let (registry, rest) = text.split_once('/').ok_or_else(no_registry)?;
        if !is_host(registry) {
            return Err(no_registry());
        }
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (rest, None),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if !is_repository(repository) {
            return Err(ReferenceError::Repository(repository.to_owned()));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(ReferenceError::Tag(tag.to_owned()));
        }
        if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
            return Err(ReferenceError::Digest(digest.to_owned()));
        }
        if tag.is_none() && digest.is_none() {
            return Err(ReferenceError::Open(text.to_owned()));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(formatter, "@{digest}")?;
        }
        Ok(())
    }
}

/// Whether a text is `sha256:` and 64 hexadecimal digits in lower case.
pub fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = text.strip_prefix("sha256:");
    digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_digit))
}

/// Without a dot or a port the first segment is not a host: some tools guess the registry then.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_named = name.contains('.') || name == "localhost" || port.is_some();
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    is_named
        && name.split('.').all(is_label)
        && port.is_none_or(|port| is_port(port) && port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn is_repository(text: &str) -> bool {
    text.len() <= REPOSITORY && text.split('/').all(is_part)
}

/// Letters and digits, joined by one dot, one or two underscores, or any number of dashes.
fn is_part(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [part.bytes().next(), part.bytes().last()];
    let between = part.split(|letter: char| letter.is_ascii() && is_word(letter as u8));
    ends.iter().all(|end| end.is_some_and(is_word))
        && between.filter(|joint| !joint.is_empty()).all(|joint| {
            matches!(joint, "." | "_" | "__") || joint.bytes().all(|byte| byte == b'-')
        })
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG
        && text.bytes().next().is_some_and(is_word)
        && text
            .bytes()
            .all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use cel::{Context, Program};
    use ipu_api::crd::policy_rules::REFERENCE;

    use super::*;

    const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn a_reference_is_taken_apart_and_shown_as_it_was() {
        for (text, registry, repository, version) in [
            (
                "registry.example.com/team/policy:1.2",
                "registry.example.com",
                "team/policy",
                "1.2",
            ),
            ("localhost/p:latest", "localhost", "p", "latest"),
            (
                "registry:5000/a/b__c/d--e.f:_1-a.B",
                "registry:5000",
                "a/b__c/d--e.f",
                "_1-a.B",
            ),
            ("10.0.0.1:443/a:1", "10.0.0.1:443", "a", "1"),
            (&format!("r.io/a@{DIGEST}"), "r.io", "a", DIGEST),
            (&format!("r.io/a:1@{DIGEST}"), "r.io", "a", DIGEST),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.registry(), registry);
            assert_eq!(reference.repository(), repository);
            assert_eq!(reference.version(), version);
            assert_eq!(reference.to_string(), text);
        }
    }

    #[test]
    fn docker_hub_is_reached_under_its_other_name() {
        let host = |text: &str| text.parse::<Reference>().unwrap().host().to_owned();
        assert_eq!(host("docker.io/team/policy:1"), "registry-1.docker.io");
        assert_eq!(host("ghcr.io/team/policy:1"), "ghcr.io");
    }

    #[test]
    fn what_is_wrong_with_a_reference_is_named() {
        type Kind = fn(String) -> ReferenceError;
        let long_tag = format!("r.io/a:{}", "x".repeat(129));
        let long_name = format!("r.io/{}:1", "x".repeat(256));
        let cases: [(&str, Kind, &str); 20] = [
            ("", ReferenceError::Registry, ""),
            ("policy:1", ReferenceError::Registry, "policy:1"),
            ("team/policy:1", ReferenceError::Registry, "team/policy:1"),
            (
                "https://r.io/a:1",
                ReferenceError::Registry,
                "https://r.io/a:1",
            ),
            ("r.io:0/a:1", ReferenceError::Registry, "r.io:0/a:1"),
            ("r.io:+1/a:1", ReferenceError::Registry, "r.io:+1/a:1"),
            ("r.io:99999/a:1", ReferenceError::Registry, "r.io:99999/a:1"),
            ("-r.io/a:1", ReferenceError::Registry, "-r.io/a:1"),
            ("user@r.io/a:1", ReferenceError::Registry, "user@r.io/a:1"),
            ("r.io/A:1", ReferenceError::Repository, "A"),
            ("r.io/a//b:1", ReferenceError::Repository, "a//b"),
            ("r.io/a..b:1", ReferenceError::Repository, "a..b"),
            ("r.io/../b:1", ReferenceError::Repository, "../b"),
            ("r.io/a?x:1", ReferenceError::Repository, "a?x"),
            ("r.io/é:1", ReferenceError::Repository, "é"),
            (&long_name, ReferenceError::Repository, &long_name[5..261]),
            ("r.io/a:-1", ReferenceError::Tag, "-1"),
            (&long_tag, ReferenceError::Tag, &long_tag[7..]),
            ("r.io/a@sha256:12", ReferenceError::Digest, "sha256:12"),
            ("r.io/a", ReferenceError::Open, "r.io/a"),
        ];
        for (text, kind, named) in cases {
            assert_eq!(
                text.parse::<Reference>(),
                Err(kind(named.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn the_definition_takes_the_references_that_the_operator_takes() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let program = Program::compile(&format!("text.matches('{REFERENCE}')")).unwrap();
        for text in [
            "registry.example.com/team/policy:1.2",
            "localhost/p:latest",
            "registry:5000/a/b__c/d--e.f:_1-a.B",
            &format!("r.io/a@{digest}"),
            &format!("r.io/a:1@{digest}"),
            "policy:1",
            "team/policy:1",
            "https://r.io/a:1",
            "r.io/A:1",
            "r.io/a//b:1",
            "r.io/a..b:1",
            "r.io/../b:1",
            "r.io/a:-1",
            "r.io/a@sha256:12",
            "r.io/a",
            "user@r.io/a:1",
            "-r.io/a:1",
            "r-.io/a:1",
            "r.io:0/a:1",
            "a..b:5000/x:1",
            "",
        ] {
            let mut context = Context::default();
            context.add_variable_from_value("text", text);
            let matches = program.execute(&context).unwrap();
            let is_taken = text.parse::<Reference>().is_ok();
            assert_eq!(matches, cel::Value::Bool(is_taken), "{text}");
        }
    }
}
