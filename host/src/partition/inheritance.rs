//! Pure: which partitions of Graphcore's operator are taken over.
//!
//! That operator called them `p-<job>-<namespace>-<instance>`. Two jobs can share such a name, and so can
//! the jobs of two clusters with the same V-IPU controllers. So one is taken over only where the old
//! tracker of this release names it, one controller has it in the size that is wanted, and no other
//! IPUPartition could be meant.

use std::borrow::Cow;
use std::collections::HashSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;

use super::fleet::Look;
use crate::api::ipupartition::IPUPartition;
use crate::names;

/// The names in the old tracker when this replica began to lead. Its format is not published: it is text
/// in which ids are looked for, each as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inheritance(HashSet<String>);

impl Inheritance {
    /// All names in a tracker.
    pub fn of(tracker: &ConfigMap) -> Self {
        let text = tracker.data.iter().flatten();
        let text = text.map(|(key, value)| (key, Cow::from(value)));
        let bytes = tracker.binary_data.iter().flatten();
        let bytes = bytes.map(|(key, bytes)| (key, String::from_utf8_lossy(&bytes.0)));
        let mut found = HashSet::new();
        for (key, value) in text.chain(bytes) {
            found.extend(names_in(key).chain(names_in(&value)).map(str::to_owned));
        }
        Self(found)
    }

    /// The id under which Graphcore's operator made what `me` wants, where the tracker names it and
    /// nothing was tried for `me` yet.
    pub fn id_for(&self, me: &IPUPartition) -> Option<String> {
        let is_new = me
            .status
            .as_ref()
            .is_none_or(|status| status.generation == 0 && status.attempts.is_empty());
        let id = is_new.then(|| names::inherited_partition(&me.spec.owner, me.spec.slot))?;
        self.0.contains(&id).then_some(id)
    }
}

/// The controller from which `me` takes partition `id` over; none where it has another size, where more
/// than one has it, or where another IPUPartition could be meant.
pub(super) fn holder<'a>(
    me: &IPUPartition,
    id: &str,
    mut others: impl Iterator<Item = &'a IPUPartition>,
    looks: &'a [Look],
) -> Option<&'a str> {
    let is_meant = |one: &IPUPartition| {
        one.uid() != me.uid() && names::inherited_partition(&one.spec.owner, one.spec.slot) == id
    };
    if others.any(is_meant) {
        return None;
    }
    let listed = looks.iter().flat_map(|look| {
        look.listed
            .iter()
            .map(move |found| (&look.view.name, found))
    });
    let mut holders = listed.filter(|(_, found)| found.id == id);
    let (name, found) = holders.next()?;
    let fits = found.ipus == me.spec.ipus && found.gcds == me.spec.gcds;
    (fits && holders.next().is_none()).then_some(name.as_str())
}

/// What may be ids of partitions in a text.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let is_of_names = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    text.split(move |letter| !is_of_names(letter))
        .filter(|name| name.starts_with("p-"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::job::tests::world;
    use crate::partition::knowledge::{Answer, Fact, Intent, Knowledge, Truth};
    use crate::partition::step::{self, Settings, Step};
    use crate::vipu::model::{ListedPartition, ReadyState};
    use crate::wasm::model::ControllerView;

    fn wanted(uid: &str, (namespace, name): (&str, &str), status: &Value) -> IPUPartition {
        serde_json::from_value(json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {"name": uid, "uid": uid},
            "spec": {
                "owner": {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
                    "namespace": namespace, "name": name, "uid": "job"},
                "slot": 0, "ipus": 4, "gcds": 2,
            },
            "status": status,
        }))
        .unwrap()
    }

    fn tracker(text: &str) -> Inheritance {
        Inheritance::of(&ConfigMap {
            data: Some(BTreeMap::from([("tracker".to_owned(), text.to_owned())])),
            ..ConfigMap::default()
        })
    }

    fn look(name: &str, ids: &[(&str, u32, u32)]) -> Look {
        let listed = ids.iter().map(|(id, ipus, gcds)| ListedPartition {
            id: (*id).to_owned(),
            ipus: *ipus,
            gcds: *gcds,
            ready_state: ReadyState::Active,
        });
        Look {
            view: ControllerView {
                name: name.to_owned(),
                label_key: String::new(),
                label_value: String::new(),
                has_nodes: true,
                unreachable: None,
                total_ipus: 16,
                used_ipus: 0,
                largest_free: 16,
                failures: 0,
            },
            version: None,
            listed: listed.collect(),
            closure: None,
            troubles: crate::vipu::troubles::Troubles::default(),
        }
    }

    #[test]
    fn an_id_counts_where_the_tracker_names_it_as_a_whole() {
        let me = wanted("u", ("default", "mnist"), &Value::Null);
        let id = "p-mnist-default-0";
        for text in [
            id.to_owned(),
            format!("{{\"jobs\":[\"{id}\"]}}"),
            format!("default/mnist: {id}\n"),
        ] {
            assert_eq!(tracker(&text).id_for(&me).as_deref(), Some(id), "{text}");
        }
        for text in [
            "",
            "p-mnist-default-01",
            "x-p-mnist-default-0",
            "p-mnist-default-0.x",
        ] {
            assert_eq!(tracker(text).id_for(&me), None, "{text}");
        }
        let tried = json!({"phase": "Pending", "generation": 1, "attempts": []});
        let tried = wanted("u", ("default", "mnist"), &tried);
        assert_eq!(tracker(id).id_for(&tried), None);
    }

    #[test]
    fn one_that_is_no_longer_there_is_looked_for_once() {
        let settings = Settings {
            installation: "here".to_owned(),
            forming: Duration::from_mins(5),
            grace: Duration::from_secs(30),
            gang_patience: Duration::from_mins(2),
            overtaking_limit: Duration::from_mins(10),
        };
        let mut me = wanted("u", ("default", "mnist"), &Value::Null);
        me.metadata.finalizers = Some(vec![names::PARTITION_FINALIZER.to_owned()]);
        let mut knowledge = Knowledge::default();
        let mut next = |me: &mut IPUPartition, fact: Fact| {
            knowledge.learn(fact);
            let step = step::next(me, &knowledge, &settings, Timestamp::UNIX_EPOCH);
            if let Step::Write(status) | Step::Record(status, _) = &step {
                me.status = Some((**status).clone());
            }
            step
        };
        let id = names::inherited_partition(&me.spec.owner, 0);
        let controller = world::controller();
        let found = Fact::Placed(Answer::TakeOver(controller, id.clone()));
        let intent = Intent::TakeOver(id.clone());
        let step = next(&mut me, found);
        assert!(matches!(step, Step::Record(_, found) if found == intent));
        let step = next(&mut me, Fact::Recorded(intent));
        assert!(matches!(step, Step::AskTruth(attempt) if attempt.id == id));
        let truth = Truth::Absent;
        assert!(matches!(
            next(&mut me, Fact::Truth { id, truth }),
            Step::Write(_)
        ));
        assert_eq!(next(&mut me, Fact::Written), Step::Place);
    }

    #[test]
    fn one_controller_must_have_it_in_the_size_that_is_wanted_for_nobody_else() {
        let me = wanted("u", ("b-c", "a"), &Value::Null);
        let id = names::inherited_partition(&me.spec.owner, 0);
        let other = wanted("v", ("c", "a-b"), &Value::Null);
        let good = look("pod1", &[("p-x", 8, 1), (&id, 4, 2)]);
        let alone = [me.clone()];
        let found = |looks: &[Look]| holder(&me, &id, alone.iter(), looks).map(str::to_owned);
        assert_eq!(found(std::slice::from_ref(&good)), Some("pod1".to_owned()));
        assert_eq!(found(&[good.clone(), look("pod2", &[(&id, 4, 2)])]), None);
        assert_eq!(found(&[look("pod1", &[(&id, 8, 2)])]), None);
        assert_eq!(found(&[look("pod1", &[(&id, 4, 1)])]), None);
        assert_eq!(found(&[look("pod1", &[])]), None);
        let both = [me.clone(), other];
        assert_eq!(holder(&me, &id, both.iter(), &[good]), None);
    }
}
