//! Pure: decides which of several releases serves a namespace that more than one claims.

use jiff::Timestamp;

use super::Scope;

/// A release, as its webhook configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the webhook configuration, which identifies the release.
    pub configuration: String,
    /// Namespace of the release.
    pub namespace: String,
    /// The namespaces that it serves.
    pub scope: Scope,
    /// Creation time of the configuration. `None`: it does not exist yet.
    pub since: Option<Timestamp>,
}

/// Conflict that makes a release inactive: the other release is older.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Namespace of the other release.
    pub with: String,
    /// Webhook configuration of the other release.
    pub configuration: String,
    /// The namespaces that the other release serves.
    pub theirs: Scope,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// Both claim these namespaces.
    Shared(Scope),
    /// Both are in the same namespace, so their IPUPolicies and Leases have the same names.
    SameNamespace,
}

impl Conflict {
    /// The problem, and the fix.
    pub fn message(&self) -> String {
        let (with, configuration, theirs) = (&self.with, &self.configuration, &self.theirs);
        let other = format!(
            "the IPU operator in namespace {with} (webhook configuration {configuration}), which is older \
             and serves {theirs}"
        );
        match &self.reason {
            Reason::Shared(both) => format!(
                "{both}: also served by {other}. Give the two releases other values of watchNamespaces, or \
                 uninstall one of them"
            ),
            Reason::SameNamespace => format!(
                "this release is in the same namespace as {other}. Install it in a namespace of its own"
            ),
        }
    }
}

/// The older releases that make `mine` inactive, oldest first. Of two releases, the one with the
/// older webhook configuration is active.
pub fn conflicts(mine: &Claim, claims: &[Claim]) -> Vec<Conflict> {
    let mut claims: Vec<_> = claims.iter().collect();
    claims.sort_by(|one, other| rank(one).cmp(&rank(other)));
    let others = claims
        .into_iter()
        .filter(|claim| claim.configuration != mine.configuration);
    let older = others.filter(|claim| rank(claim) < rank(mine));
    let conflict = |claim: &Claim| {
        let shared = mine.scope.shared_with(&claim.scope).map(Reason::Shared);
        let same = (mine.namespace == claim.namespace).then_some(Reason::SameNamespace);
        Some(Conflict {
            with: claim.namespace.clone(),
            configuration: claim.configuration.clone(),
            theirs: claim.scope.clone(),
            reason: shared.or(same)?,
        })
    };
    older.filter_map(conflict).collect()
}

/// Orders claims by age, oldest first. A claim without a configuration is last.
fn rank(claim: &Claim) -> (bool, Option<Timestamp>, &str) {
    (claim.since.is_none(), claim.since, &claim.configuration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(configuration: &str, namespace: &str, scope: &str, since: i64) -> Claim {
        Claim {
            configuration: configuration.to_owned(),
            namespace: namespace.to_owned(),
            scope: scope.parse().unwrap(),
            since: Some(Timestamp::from_second(since).unwrap()),
        }
    }

    #[test]
    fn releases_with_namespaces_of_their_own_both_go_on() {
        let (one, two) = (claim("a", "ops-a", "x,y", 1), claim("b", "ops-b", "z", 2));
        let all = [one.clone(), two.clone()];
        assert_eq!(conflicts(&one, &all), []);
        assert_eq!(conflicts(&two, &all), []);
    }

    #[test]
    fn one_of_two_overlapping_releases_is_inactive_and_says_why() {
        let cases = [
            (
                claim("a", "ops-a", "x,y", 1),
                claim("b", "ops-b", "y", 2),
                "namespace y: ",
            ),
            (
                claim("a", "ops-a", "", 1),
                claim("b", "ops-b", "y,z", 2),
                "namespaces y, z: ",
            ),
            (
                claim("b", "ops-b", "y", 1),
                claim("a", "ops-a", "", 2),
                "namespace y: ",
            ),
            (
                claim("a", "ops-a", "", 5),
                claim("b", "ops-b", "", 5),
                "all namespaces: ",
            ),
            (
                claim("a", "ops", "x", 1),
                claim("b", "ops", "y", 2),
                "same namespace",
            ),
        ];
        for (first, second, text) in cases {
            let all = [second.clone(), first.clone()];
            assert_eq!(conflicts(&first, &all), [], "{first:?}");
            let conflict = conflicts(&second, &all).remove(0);
            assert_eq!(conflict.with, first.namespace);
            assert!(conflict.message().contains(text), "{}", conflict.message());
        }
    }

    #[test]
    fn a_release_whose_configuration_is_not_there_yet_is_the_last() {
        let there = claim("b", "ops-b", "x", 9);
        let mine = Claim {
            since: None,
            ..claim("a", "ops-a", "x", 0)
        };
        assert_eq!(conflicts(&mine, &[there]).len(), 1);
        assert_eq!(conflicts(&mine, &[]), []);
    }

    #[test]
    fn an_inactive_release_keeps_its_order_and_knows_older_ones() {
        let all = [
            claim("c", "ops-c", "", 3),
            claim("b", "ops-b", "x,y", 2),
            claim("a", "ops-a", "x", 1),
        ];
        let before = |mine: &Claim| {
            let conflicts = conflicts(mine, &all).into_iter();
            conflicts.map(|conflict| conflict.with).collect::<Vec<_>>()
        };
        assert_eq!(before(&all[0]), ["ops-a", "ops-b"]);
        assert_eq!(before(&all[1]), ["ops-a"]);
        assert_eq!(before(&all[2]), [""; 0]);
    }
}
