//! Pure: the namespaces that a release serves.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ipu_api::dns1123::is_label;

/// The namespaces that a release serves. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The whole cluster, with future namespaces.
    #[default]
    Cluster,
    /// Only these; never empty.
    Namespaces(Arc<BTreeSet<String>>),
}

/// Reason why a text names no namespaces.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be the name of a namespace: give names of lowercase letters, digits and `-`, with commas \
     between them, or nothing for the whole cluster"
)]
pub struct NotANamespace(String);

impl Scope {
    /// Whether a namespace is served.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespaces(names) => names.contains(namespace),
        }
    }

    /// The namespaces, if the scope is not the whole cluster.
    pub fn namespaces(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::Cluster => None,
            Self::Namespaces(names) => Some(names),
        }
    }

    /// The intersection with another scope.
    pub fn shared_with(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Cluster, scope) | (scope, Self::Cluster) => Some(scope.clone()),
            (Self::Namespaces(mine), Self::Namespaces(theirs)) => {
                let both: BTreeSet<_> = mine.intersection(theirs).cloned().collect();
                (!both.is_empty()).then(|| Self::Namespaces(Arc::new(both)))
            }
        }
    }
}

impl FromStr for Scope {
    type Err = NotANamespace;

    /// Names separated by commas. Without a name: the whole cluster.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let names: BTreeSet<String> = names.map(ToOwned::to_owned).collect();
        match names.iter().find(|name| !is_label(name)) {
            Some(wrong) => Err(NotANamespace(wrong.clone())),
            None if names.is_empty() => Ok(Self::Cluster),
            None => Ok(Self::Namespaces(Arc::new(names))),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => out.write_str("all namespaces"),
            Self::Namespaces(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let noun = if names.len() == 1 {
                    "namespace"
                } else {
                    "namespaces"
                };
                write!(out, "{noun} {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_taken_with_and_without_spaces_and_twice() {
        assert_eq!(scope("a, b,a,"), scope("b,a"));
        assert_eq!(scope("a").to_string(), "namespace a");
        assert_eq!(scope("b,a").to_string(), "namespaces a, b");
        for nothing in ["", " ", ",", " , "] {
            assert_eq!(scope(nothing), Scope::Cluster, "{nothing:?}");
        }
    }

    #[test]
    fn what_no_namespace_can_be_called_is_refused_by_name() {
        for wrong in ["*", "Team", "a/b", "../x", "a b", "-a", &"x".repeat(64)] {
            let refused = format!("good,{wrong}").parse::<Scope>().unwrap_err();
            assert!(refused.to_string().contains(wrong), "{refused}");
        }
    }

    #[test]
    fn only_what_both_serve_is_shared() {
        let cases = [
            ("", "", Some("")),
            ("a", "", Some("a")),
            ("", "a,b", Some("a,b")),
            ("a,b,c", "c,b,d", Some("b,c")),
            ("a", "b", None),
        ];
        for (mine, theirs, both) in cases {
            let shared = scope(mine).shared_with(&scope(theirs));
            assert_eq!(shared, both.map(scope), "{mine:?} and {theirs:?}");
        }
        assert!(scope("").contains("any") && scope("a,b").contains("b"));
        assert!(!scope("a,b").contains("c"));
    }
}
