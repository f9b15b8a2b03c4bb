//! `/query` calls the active placement guest, as a component.

use ipu_api::guest::placement::{ControllerView, PlacementContext};
use ipu_api::ipupolicy::Hook;
use ipu_policies::active_policies::ActivePolicies;
use ipu_rest::{query_request, what_if};

use super::{open, options};

/// Controllers of 64 IPUs. Only the last one has free capacity.
fn last_is_free(count: usize) -> Vec<ControllerView> {
    let controllers = (1..=count).map(|number| ControllerView {
        name: format!("pod{number}:8090"),
        label_key: "ipunode".to_owned(),
        label_value: format!("pod{number}"),
        has_nodes: true,
        unschedulable: None,
        unreachable: None,
        total_ipus: 64,
        used_ipus: if number == count { 0 } else { 64 },
        largest_free: if number == count { 64 } else { 0 },
        free_blocks: Vec::new(),
        failures: 0,
    });
    controllers.collect()
}

async fn ask(guests: &ActivePolicies, body: &str, views: &[ControllerView]) -> what_if::Placement {
    let query = query_request::read(body.as_bytes()).unwrap();
    what_if::answer(guests, &query, PlacementContext::default(), views)
        .await
        .placement
}

#[tokio::test]
async fn the_guest_names_the_controller_and_why_it_skips_the_others() {
    let guests = ActivePolicies::new(open(options(&[Hook::Placement])).await);
    for count in [1, 16, 256] {
        let views = last_is_free(count);
        let placement = ask(&guests, r#"{"size": 64}"#, &views).await;
        assert_eq!(placement.overruled, None, "the guest itself decided");
        assert_eq!(placement.controller.as_ref(), Some(&views[count - 1].name));
        assert_eq!(placement.passed_over.len(), count - 1);
        let mut named = placement.passed_over.iter().zip(&views);
        assert!(named.all(|(passed, view)| {
            passed.controller == view.name && passed.reason.contains("64 of its 64 IPUs are used")
        }));
    }
}

#[tokio::test]
async fn the_guest_says_why_a_request_waits_or_is_rejected() {
    let guests = ActivePolicies::new(open(options(&[Hook::Placement])).await);
    let full = &last_is_free(17)[..16];
    let waits = ask(&guests, r#"{"size": 2}"#, full).await;
    assert_eq!(waits.decision, what_if::Outcome::Wait);
    assert_eq!((waits.passed_over.len(), waits.largest_size), (16, Some(0)));
    let never = ask(&guests, r#"{"size": 128}"#, full).await;
    assert_eq!(never.decision, what_if::Outcome::Reject);
    assert!(never.reason.unwrap().contains("128 IPUs"));
}
