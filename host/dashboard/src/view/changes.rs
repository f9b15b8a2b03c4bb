//! Pure: the views that a change of the cluster affects.

use serde::Serialize;
use strum::VariantArray;

use crate::cluster::Kind;

/// A view of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, VariantArray)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// What matters of all others.
    Overview,
    /// The IPUs of each V-IPU controller.
    Controllers,
    /// The requests that wait.
    Queue,
    /// The partitions, and one of them with its owner.
    Partitions,
    /// The policies.
    Policies,
    /// Use of the IPU-hours of the last day.
    Goodput,
    /// The last day, hour by hour.
    History,
}

/// The number of changes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes([u64; Kind::ALL.len()]);

impl View {
    /// All views.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Its source kinds.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Overview => &[
                Kind::Controllers,
                Kind::Accountings,
                Kind::Partitions,
                Kind::Jobs,
                Kind::Nodes,
            ],
            Self::Controllers => &[Kind::Controllers, Kind::Partitions, Kind::Jobs, Kind::Nodes],
            Self::Queue => &[Kind::Controllers, Kind::Partitions, Kind::Jobs],
            Self::Partitions => &[Kind::Partitions, Kind::Jobs],
            Self::Policies => &[Kind::Policies],
            Self::Goodput | Self::History => &[Kind::Controllers, Kind::Accountings],
        }
    }
}

impl Changes {
    /// Counts a change.
    pub fn count(&mut self, kind: Kind) {
        let count = &mut self.0[kind.index()];
        *count = count.wrapping_add(1);
    }

    /// The views that have changed since.
    pub fn views_since(&self, before: &Self) -> Vec<View> {
        let has_changed = |kind: &Kind| self.0[kind.index()] != before.0[kind.index()];
        let mut views = View::ALL.to_vec();
        views.retain(|view| view.kinds().iter().any(has_changed));
        views
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_about_the_views_that_are_made_of_its_kind() {
        use View::{Controllers, Goodput, History, Overview, Partitions, Policies, Queue};
        for (kind, expected) in [
            (
                Kind::Controllers,
                &[Overview, Controllers, Queue, Goodput, History][..],
            ),
            (
                Kind::Partitions,
                &[Overview, Controllers, Queue, Partitions],
            ),
            (Kind::Accountings, &[Overview, Goodput, History]),
            (Kind::Jobs, &[Overview, Controllers, Queue, Partitions]),
            (Kind::Policies, &[Policies]),
            (Kind::Nodes, &[Overview, Controllers]),
        ] {
            let before = Changes::default();
            let mut after = before;
            after.count(kind);
            assert_eq!(after.views_since(&before), expected);
            assert!(after.views_since(&after).is_empty());
        }
    }
}
