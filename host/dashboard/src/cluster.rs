//! Pure: the state of the cluster: the objects of each watched kind, and the rights of the user.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use strum::VariantArray;

use crate::past::Past;
use crate::projection::{Accounted, Controller, Job, Node, Partition, Policy};
use crate::store::{Store, key};

/// Time for which an error of a watch is shown. A watch that fails again reports it again before.
const ERROR_AGE_MAX: SignedDuration = SignedDuration::from_secs(60);

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub enum Kind {
    /// VIPUControllers.
    Controllers,
    /// IPUAccountings.
    Accountings,
    /// IPUPartitions.
    Partitions,
    /// IPUJobs.
    Jobs,
    /// IPUPolicies.
    Policies,
    /// Nodes.
    Nodes,
}

/// All objects that are kept.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The VIPUControllers.
    pub controllers: Collection<Controller>,
    /// The IPUAccountings.
    pub accountings: Collection<Accounted>,
    /// The IPUPartitions.
    pub partitions: Collection<Partition>,
    /// The IPUJobs.
    pub jobs: Collection<Job>,
    /// The IPUPolicies.
    pub policies: Collection<Policy>,
    /// The nodes.
    pub nodes: Collection<Node>,
    /// Numbers of the last day, as far as this process has seen it.
    pub past: Past,
    /// The only namespace whose IPUJobs the user may list, and what the API server says about all.
    pub jobs_of: Option<(String, String)>,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Collection<V> {
    store: Store<Option<V>>,
    right: Right,
    trouble: Option<(Timestamp, String)>,
}

/// Whether the user may read a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Right {
    /// The API server has not answered yet.
    #[default]
    Unknown,
    Granted,
    /// Not from the start on, in the words of the API server.
    Denied(String),
    /// Not any more.
    Lost(String),
}

impl Kind {
    /// All kinds.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Its name in sentences.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Controllers => "VIPUControllers",
            Self::Accountings => "IPUAccountings",
            Self::Partitions => "IPUPartitions",
            Self::Jobs => "IPUJobs",
            Self::Policies => "IPUPolicies",
            Self::Nodes => "Nodes",
        }
    }

    /// Its index in [`Self::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Advice how to get the right to read it.
    fn remedy(self) -> &'static str {
        match self {
            Self::Controllers | Self::Accountings | Self::Partitions | Self::Jobs => {
                "an admin can bind the ClusterRole ipu-operator-view with a ClusterRoleBinding"
            }
            Self::Policies => {
                "an admin can bind a ClusterRole with the verbs list and watch on ipupolicies.graphcore.ai"
            }
            Self::Nodes => "an admin can bind a ClusterRole with the verbs list and watch on nodes",
        }
    }
}

impl<V> Default for Collection<V> {
    fn default() -> Self {
        Self {
            store: Store::default(),
            right: Right::default(),
            trouble: None,
        }
    }
}

impl<V> Collection<V> {
    /// Applies an event of the watch. `keep` reduces an object to the stored fields; `None`: it is
    /// unreadable. Returns whether the stored fields have changed: a kubelet reports its node every
    /// few minutes, and changes none of them.
    pub fn apply<K: ResourceExt>(&mut self, event: Event<K>, keep: impl Fn(K) -> Option<V>) -> bool
    where
        V: PartialEq,
    {
        let has_changed = match event {
            Event::Apply(object) => {
                let key = key(&object);
                self.store.replace(key, keep(object))
            }
            event => {
                self.store.apply(event, keep);
                true
            }
        };
        let was_in_trouble = self.trouble.is_some();
        if self.store.is_listed() {
            self.right = Right::Granted;
            self.trouble = None;
        }
        has_changed || was_in_trouble
    }

    /// Drops all objects: the API server has refused to list or watch them, with this message.
    pub fn refuse(&mut self, words: String) {
        self.right = match self.right {
            Right::Granted | Right::Lost(_) => Right::Lost(words),
            Right::Unknown | Right::Denied(_) => Right::Denied(words),
        };
        self.store = Store::default();
    }

    /// Records that the watch was interrupted. It restarts automatically.
    pub fn interrupt(&mut self, now: Timestamp, words: String) {
        self.trouble = Some((now, words));
    }

    /// Whether its objects have been read.
    pub fn is_known(&self) -> bool {
        self.right == Right::Granted
    }

    /// Its objects in the order of their namespaces and names.
    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.store.values().flatten()
    }

    /// The object `name`, or `namespace/name`.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.store.get(key)?.as_ref()
    }

    fn lost(&self) -> Option<&str> {
        match &self.right {
            Right::Lost(words) => Some(words),
            Right::Unknown | Right::Granted | Right::Denied(_) => None,
        }
    }

    /// The missing information of this kind in a view.
    fn not_shown(&self, kind: Kind, now: Timestamp) -> Vec<String> {
        let (what, remedy) = (kind.plural(), kind.remedy());
        let recent = |at: Timestamp| now.duration_since(at) < ERROR_AGE_MAX;
        let trouble = self.trouble.as_ref().filter(|(at, _)| recent(*at));
        let trouble = trouble.map(|(_, words)| words.as_str());
        let right = match (&self.right, trouble) {
            (Right::Denied(words), _) => Some(format!("the {what}: {words} ({remedy})")),
            (Right::Lost(words), _) => Some(lost(what, words)),
            (Right::Unknown, Some(words)) => Some(format!("the {what}: {words}")),
            (Right::Unknown, None) => Some(format!(
                "the {what}: the API server has not listed them yet"
            )),
            (Right::Granted, Some(words)) => Some(format!(
                "recent changes of the {what}: the watch was interrupted, and begins again: {words}"
            )),
            (Right::Granted, None) => None,
        };
        let unreadable = self.store.values().filter(|one| one.is_none()).count();
        let unreadable = (unreadable > 0)
            .then(|| format!("{unreadable} {what} that this version of the plugin cannot read"));
        right.into_iter().chain(unreadable).collect()
    }
}

impl Cluster {
    /// The missing information of these kinds in a view, in sentences.
    pub fn not_shown(&self, kinds: &[Kind], now: Timestamp) -> Vec<String> {
        let reasons = kinds.iter().flat_map(|kind| match kind {
            Kind::Controllers => self.controllers.not_shown(*kind, now),
            Kind::Accountings => self.accountings.not_shown(*kind, now),
            Kind::Partitions => self.partitions.not_shown(*kind, now),
            Kind::Jobs => self.jobs_not_shown(now),
            Kind::Policies => self.policies.not_shown(*kind, now),
            Kind::Nodes => self.nodes.not_shown(*kind, now),
        });
        reasons.collect()
    }

    fn jobs_not_shown(&self, now: Timestamp) -> Vec<String> {
        let scope = self.jobs_of.as_ref().map(|(namespace, words)| {
            format!("the IPUJobs of other namespaces than {namespace}: {words}")
        });
        let own = self.jobs.not_shown(Kind::Jobs, now);
        scope.into_iter().chain(own).collect()
    }

    /// The names of the IPUPartitions of an owner. `None`: they are not listed.
    pub fn partitions_of(&self, uid: &str) -> Option<Vec<String>> {
        let own = self.partitions.values().filter(|one| one.owner.uid == uid);
        self.partitions
            .is_known()
            .then(|| own.map(|one| one.name.clone()).collect())
    }

    /// The right that the user has lost, in a sentence, if there is one.
    pub fn lost(&self) -> Option<String> {
        let words = [
            (Kind::Controllers, self.controllers.lost()),
            (Kind::Accountings, self.accountings.lost()),
            (Kind::Partitions, self.partitions.lost()),
            (Kind::Jobs, self.jobs.lost()),
            (Kind::Policies, self.policies.lost()),
            (Kind::Nodes, self.nodes.lost()),
        ];
        let mut words = words.into_iter();
        words.find_map(|(kind, words)| Some(lost(kind.plural(), words?)))
    }
}

fn lost(what: &str, words: &str) -> String {
    format!(
        "the {what}: the API server ended the watch: {words}; start kubectl ipu dashboard again when you have the right \
         to list and watch them"
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    /// Nodes of which this version can read none.
    type Nodes = Collection<()>;

    fn listed() -> Nodes {
        let mut nodes = Collection::default();
        nodes.apply(Event::Init, |_: Node| None);
        nodes.apply(Event::InitApply(Node::default()), |_: Node| None);
        nodes.apply(Event::InitDone, |_: Node| None);
        nodes
    }

    #[test]
    fn a_right_that_was_never_there_is_denied_and_one_that_is_gone_is_lost() {
        let now = Timestamp::UNIX_EPOCH;
        let mut denied = Nodes::default();
        let notes = |nodes: &Nodes| nodes.not_shown(Kind::Partitions, now).join("\n");
        assert!(notes(&denied).contains("has not listed them yet"));
        denied.refuse("forbidden".to_owned());
        assert!(notes(&denied).starts_with("the IPUPartitions: forbidden (an admin can bind"));
        assert_eq!(denied.lost(), None);

        let mut nodes = listed();
        assert!(nodes.is_known());
        assert!(notes(&nodes).starts_with("1 IPUPartitions that this version"));
        nodes.refuse("forbidden".to_owned());
        assert!(notes(&nodes).contains("ended the watch: forbidden; start kubectl ipu dashboard"));
        assert_eq!(nodes.lost(), Some("forbidden"));
        assert_eq!(nodes.values().count(), 0);
    }

    #[test]
    fn an_interrupted_watch_is_shown_for_a_while() {
        let mut nodes = listed();
        let at = Timestamp::UNIX_EPOCH;
        nodes.interrupt(at, "connection refused".to_owned());
        let notes = |seconds| {
            let now = at + SignedDuration::from_secs(seconds);
            nodes.not_shown(Kind::Jobs, now).join("\n")
        };
        assert!(notes(59).contains("interrupted, and begins again: connection refused"));
        assert!(!notes(60).contains("interrupted"));
    }

    #[test]
    fn kinds_have_their_places() {
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), index);
        }
    }
}
