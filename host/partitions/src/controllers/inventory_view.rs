//! Pure: the IPUs of a V-IPU controller as placement sees them, from its inventory.

use ipu_api::guest::placement::{ControllerView, SizeCount};
use ipu_placement::guest_call::values::shortened;
use vipu_client::inventory::Report;
use vipu_client::model::Inventory;

/// Returns the view of a controller, with this number of failed partitions. `has_nodes`: a node has
/// its label. That none suits the Pods of an owner is not known here.
pub(super) fn view(report: Report, has_nodes: bool, failures: u32) -> ControllerView {
    let controller = report.controller;
    let (inventory, unreachable) = match report.inventory {
        Ok(inventory) => (inventory, None),
        Err(error) => (Inventory::default(), Some(shortened(&error.reason()))),
    };
    let view = ControllerView {
        name: controller.name,
        label_key: controller.label_key,
        label_value: controller.label_value,
        has_nodes,
        unreachable,
        failures,
        ..ControllerView::default()
    };
    with_inventory(view, &inventory)
}

/// Returns `view` with the IPUs of this inventory. Of the partitions that were created since the
/// list, only the sizes are known.
pub fn with_inventory(view: ControllerView, inventory: &Inventory) -> ControllerView {
    let blocks = inventory.free_blocks.as_deref().into_iter().flatten().rev();
    let free_blocks = blocks.map(|(&ipus, &count)| SizeCount { ipus, count });
    let mut view = ControllerView {
        total_ipus: inventory.total,
        used_ipus: inventory.listed,
        largest_free: inventory.largest_free(),
        free_blocks: free_blocks.collect(),
        ..view
    };
    for ipus in &inventory.created {
        view.use_up(*ipus, 1);
    }
    view.used_ipus = inventory.used;
    view
}

#[cfg(test)]
mod tests {
    use ipu_api::uid::Uid;
    use vipu_client::model::{ListedPartition, ReadyState};

    use super::*;

    fn inventory(places: &[(u32, u32)]) -> Inventory {
        let listed = places.iter().map(|&(first, ipus)| ListedPartition {
            id: format!("p-{first}"),
            ipus,
            gcds: 1,
            first_ipu: Some(first),
            ready_state: ReadyState::Active,
        });
        Inventory::new(16, listed.collect())
    }

    fn seen(inventory: &Inventory) -> (u32, u32, Vec<(u32, u32)>) {
        let view = with_inventory(ControllerView::default(), inventory);
        let blocks = view.free_blocks.iter();
        let blocks = blocks.map(|block| (block.ipus, block.count));
        (view.used_ipus, view.largest_free, blocks.collect())
    }

    #[test]
    fn free_ipus_that_are_not_together_hold_no_large_partition() {
        assert_eq!(seen(&inventory(&[])), (0, 16, vec![(16, 1)]));
        let fragmented = inventory(&[(0, 2), (8, 2)]);
        assert_eq!(seen(&fragmented), (4, 4, vec![(4, 2), (2, 2)]));
        let later = fragmented.with(Uid::of("new"), 4);
        assert_eq!(seen(&later), (8, 4, vec![(4, 1), (2, 2)]));
    }

    #[test]
    fn without_places_the_number_of_free_ipus_counts() {
        let fragmented = inventory(&[(0, 2), (8, 2)]).and_used(1);
        assert_eq!(seen(&fragmented), (5, 8, vec![]));
        let later = fragmented.with(Uid::of("new"), 4);
        assert_eq!(seen(&later), (9, 4, vec![]));
    }
}
