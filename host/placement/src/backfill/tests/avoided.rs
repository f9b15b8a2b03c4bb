//! V-IPU controllers whose nodes could not start the Pods of a request.

use super::*;

/// The controllers that a request for 8 IPUs sees.
fn seen(views: &[ControllerView], avoided: &[&str]) -> Vec<String> {
    let me = one("me", 8, 0);
    let avoided: Vec<String> = avoided.iter().map(|name| (*name).to_owned()).collect();
    let mut capacity = capacity_for(&me, &[], &[], 0, views.to_vec(), LIMIT, now());
    capacity.avoid(&me, &avoided);
    capacity.views.into_iter().map(|view| view.name).collect()
}

#[test]
fn an_avoided_controller_serves_only_if_no_other_does() {
    let free = [view("pod1", 16, 0), view("pod2", 16, 8)];
    assert_eq!(seen(&free, &[]), ["pod1", "pod2"]);
    assert_eq!(seen(&free, &["pod1"]), ["pod2"]);
    assert_eq!(seen(&free, &["pod1", "pod2"]), ["pod1", "pod2"]);
    assert_eq!(seen(&free, &["pod9"]), ["pod1", "pod2"]);
    let full = [view("pod1", 16, 0), view("pod2", 16, 12)];
    assert_eq!(seen(&full, &["pod1"]), ["pod1", "pod2"]);
    let mut without_nodes = free.clone();
    without_nodes[1].has_nodes = false;
    assert_eq!(seen(&without_nodes, &["pod1"]), ["pod1", "pod2"]);
}
