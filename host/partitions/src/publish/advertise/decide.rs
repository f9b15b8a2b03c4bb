//! Pure: how many IPUs a node advertises.

use std::collections::BTreeMap;

use ipu_api::guest::placement::ControllerView;
use ipu_api::vipu_controller::VIPUControllerStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

/// Field manager of the IPUs of nodes. It shows which of them the operator has set.
pub const NODES_MANAGER: &str = "ipu-operator-nodes";

/// A V-IPU controller, as its nodes advertise it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Key of the label of its nodes.
    pub label_key: String,
    /// Value of that label.
    pub label_value: String,
    /// Number of its IPUs. `None`: it does not answer.
    pub total: Option<u32>,
}

impl Reached {
    fn of_other(status: VIPUControllerStatus) -> Self {
        Self {
            label_key: status.label_key,
            label_value: status.label_value,
            total: Some(status.ipus.total),
        }
    }
}

/// State of the V-IPU controllers.
#[derive(Debug, Default)]
pub struct Known {
    /// Those of the list.
    listed: Vec<Reached>,
    /// Those of other releases alone. `None`: they are not known.
    others: Option<Vec<Reached>>,
}

/// The change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Keep,
    /// It advertises this number.
    Set(u32),
    /// It advertises nothing any more.
    Remove,
}

impl Known {
    /// Reads what all controllers of the list have. `others` are those that other releases list,
    /// too or alone.
    pub fn of(views: &[ControllerView], others: Option<Vec<VIPUControllerStatus>>) -> Self {
        let listed = views.iter().map(|view| Reached {
            label_key: view.label_key.clone(),
            label_value: view.label_value.clone(),
            total: view.unreachable.is_none().then_some(view.total_ipus),
        });
        let is_listed =
            |status: &VIPUControllerStatus| views.iter().any(|view| view.name == status.address);
        let alone = |statuses: Vec<VIPUControllerStatus>| {
            let statuses = statuses.into_iter().filter(|status| !is_listed(status));
            statuses.map(Reached::of_other).collect()
        };
        Self {
            listed: listed.collect(),
            others: others.map(alone),
        }
    }

    /// Decides the change of a node with these labels. While a controller does not answer, its
    /// nodes stay unchanged, because its partitions still serve Pods. Each release of a node's
    /// controllers advertises all of them, so that no two releases write different numbers.
    pub fn change(
        &self,
        labels: &BTreeMap<String, String>,
        managed: &[ManagedFieldsEntry],
    ) -> Change {
        let reaches = |found: &&Reached| labels.get(&found.label_key) == Some(&found.label_value);
        let listed: Vec<&Reached> = self.listed.iter().filter(reaches).collect();
        let others: Vec<&Reached> = self.others.iter().flatten().filter(reaches).collect();
        if listed.is_empty() {
            let is_ours =
                |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some(NODES_MANAGER);
            let is_of_nobody = self.others.is_some() && others.is_empty();
            return if is_of_nobody && managed.iter().any(is_ours) {
                Change::Remove
            } else {
                Change::Keep
            };
        }
        let mut totals = listed.into_iter().chain(others).map(|found| found.total);
        let total = totals.try_fold(0_u32, |sum, total| Some(sum.saturating_add(total?)));
        total.map_or(Change::Keep, Change::Set)
    }
}

#[cfg(test)]
mod tests {
    use ipu_placement::samples::view;

    use super::*;

    fn reached(value: &str, total: Option<u32>) -> Reached {
        Reached {
            label_key: "ipunode".to_owned(),
            label_value: value.to_owned(),
            total,
        }
    }

    fn known(totals: &[Option<u32>]) -> Known {
        Known {
            listed: totals.iter().map(|total| reached("here", *total)).collect(),
            others: Some(Vec::new()),
        }
    }

    fn labels(value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("ipunode".to_owned(), value.to_owned())])
    }

    #[test]
    fn a_node_advertises_the_ipus_of_all_controllers_that_it_reaches() {
        for (totals, value, expected) in [
            (&[Some(16)][..], "here", Change::Set(16)),
            (&[Some(16), Some(64)], "here", Change::Set(80)),
            (&[Some(16), Some(u32::MAX)], "here", Change::Set(u32::MAX)),
            (&[Some(16)], "elsewhere", Change::Keep),
            (&[Some(16), None], "here", Change::Keep),
            (&[], "here", Change::Keep),
        ] {
            let change = known(totals).change(&labels(value), &[]);
            assert_eq!(change, expected, "{totals:?} {value}");
        }
    }

    fn by(manager: &str) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            ..ManagedFieldsEntry::default()
        }
    }

    #[test]
    fn releases_that_share_a_node_advertise_the_same() {
        let of = |value, others: &[(&str, u32)]| {
            let others = others
                .iter()
                .map(|(value, ipus)| reached(value, Some(*ipus)));
            let known = Known {
                listed: vec![reached("here", Some(16))],
                others: Some(others.collect()),
            };
            known.change(&labels(value), &[by(NODES_MANAGER)])
        };
        assert_eq!(of("here", &[("here", 64)]), Change::Set(80));
        assert_eq!(of("here", &[("there", 64)]), Change::Set(16));
        assert_eq!(of("there", &[("there", 64)]), Change::Keep);
        assert_eq!(of("there", &[]), Change::Remove);
        let unknown = Known {
            others: None,
            ..known(&[Some(16)])
        };
        let change = unknown.change(&labels("there"), &[by(NODES_MANAGER)]);
        assert_eq!(change, Change::Keep, "another release may have set it");
    }

    #[test]
    fn only_what_the_operator_has_set_is_removed() {
        let change = |managed: &[ManagedFieldsEntry]| {
            known(&[Some(16)]).change(&labels("elsewhere"), managed)
        };
        assert_eq!(change(&[by("kubelet"), by("an-admin")]), Change::Keep);
        assert_eq!(change(&[by("kubelet"), by(NODES_MANAGER)]), Change::Remove);
    }

    #[test]
    fn a_controller_without_an_answer_has_no_total() {
        for (unreachable, expected) in [
            (None, Change::Set(16)),
            (Some("it is down".to_owned()), Change::Keep),
        ] {
            let view = ControllerView {
                unreachable,
                ..view("here", 16, 0)
            };
            let known = Known::of(&[view], None);
            assert_eq!(known.change(&labels("here"), &[]), expected);
        }
    }
}
