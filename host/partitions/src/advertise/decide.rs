//! Pure: how many IPUs a node advertises.

use std::collections::BTreeMap;

use ipu_guest_host::model::ControllerView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

/// Field manager of the IPUs of nodes. It shows which of them the operator has set.
pub const NODES_MANAGER: &str = "ipu-operator-nodes";

/// State of the V-IPU controllers: label and value of their nodes, and their IPUs, if they answer.
#[derive(Debug, Default)]
pub struct Known(Vec<(String, String, Option<u32>)>);

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
    /// Reads what all controllers of the list have.
    pub fn of(views: &[ControllerView]) -> Self {
        let all = views.iter().map(|view| {
            let total = view.unreachable.is_none().then_some(view.total_ipus);
            (view.label_key.clone(), view.label_value.clone(), total)
        });
        Self(all.collect())
    }

    /// Decides the change of a node with these labels. While a controller does not answer, its nodes stay unchanged,
    /// because its partitions still serve Pods.
    pub fn change(
        &self,
        labels: &BTreeMap<String, String>,
        managed: &[ManagedFieldsEntry],
    ) -> Change {
        let reached = self
            .0
            .iter()
            .filter(|(key, value, _)| labels.get(key) == Some(value));
        let totals: Vec<Option<u32>> = reached.map(|(_, _, total)| *total).collect();
        if totals.is_empty() {
            let is_ours =
                |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some(NODES_MANAGER);
            return if managed.iter().any(is_ours) {
                Change::Remove
            } else {
                Change::Keep
            };
        }
        let total = totals
            .into_iter()
            .try_fold(0_u32, |sum, total| Some(sum.saturating_add(total?)));
        total.map_or(Change::Keep, Change::Set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::view;

    fn known(totals: &[Option<u32>]) -> Known {
        let here = |total: &Option<u32>| ("ipunode".to_owned(), "here".to_owned(), *total);
        Known(totals.iter().map(here).collect())
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

    #[test]
    fn only_what_the_operator_has_set_is_removed() {
        let by = |manager: &str| ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            ..ManagedFieldsEntry::default()
        };
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
            assert_eq!(Known::of(&[view]).change(&labels("here"), &[]), expected);
        }
    }
}
