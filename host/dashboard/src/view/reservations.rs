//! Pure: the capacity that is reserved for requests that wait.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use super::{ControllerRow, Page, controllers};
use crate::cluster::Cluster;
use crate::projection::{Controller, Owner};

/// The free IPUs of a V-IPU controller that are reserved for a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reservation {
    /// `namespace/name` of the owner.
    pub owner: String,
    /// The V-IPU controller.
    pub controller: ControllerRow,
}

/// The V-IPU controllers whose free IPUs are reserved for a request of one of these owners.
pub(super) fn reservations<'a>(
    cluster: &Cluster,
    owners: impl Iterator<Item = &'a Owner>,
    now: Timestamp,
) -> Vec<Reservation> {
    let is_reserved = |controller: &Controller| controller.reserved_for.is_some();
    if !cluster.controllers.values().any(is_reserved) {
        return Vec::new();
    }
    let owners: BTreeSet<_> = owners
        .map(|owner| format!("{}/{}", owner.namespace, owner.name))
        .collect();
    let all = controllers(cluster, None, Page::ALL, now).rows.into_iter();
    all.filter_map(|controller| {
        // The operator writes the owner, and then the size and the time of the request.
        let reserved_for = controller.controller.reserved_for.as_deref()?;
        let owner = reserved_for.split(' ').next()?.to_owned();
        owners
            .contains(&owner)
            .then_some(Reservation { owner, controller })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::fixture::{cluster, controller, now};

    #[test]
    fn a_reservation_names_its_owner_and_its_controller() {
        let mut reserved = controller("pod1", 64, 48, 16);
        reserved["status"]["reservedFor"] =
            json!("b/first (32 IPUs), which has waited since 2026-01-02T12:00:01Z");
        let known = cluster(
            vec![reserved, controller("pod2", 64, 0, 64)],
            Vec::new(),
            Vec::new(),
        );
        let drawn = |name: &str| {
            let owner = Owner {
                namespace: "b".to_owned(),
                name: name.to_owned(),
                ..Owner::default()
            };
            let all = reservations(&known, [&owner].into_iter(), now()).into_iter();
            all.map(|reservation| (reservation.owner, reservation.controller.controller.name))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            drawn("first"),
            [("b/first".to_owned(), "pod1-8090".to_owned())]
        );
        assert_eq!(drawn("firs"), []);
    }
}
