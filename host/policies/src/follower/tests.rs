//! A replica that follows the IPUPolicies, and removes unused modules.

use std::fs;

use ipu_guest_host::{GuestHost, GuestHostOptions};
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::source::fixture::{World, module};
use crate::watch::fixture::without_policies;

#[tokio::test(start_paused = true)]
async fn unused_modules_are_removed_while_nothing_is_due() {
    let world = World::new();
    let sources = world.sources(json!([]));
    world.put_signed(&json!({}));
    sources.fetch(&module()).await.unwrap();
    let stored = || {
        fs::read_dir(world.folder.path().join("modules"))
            .unwrap()
            .count()
    };
    assert_eq!(stored(), 1);
    let host = GuestHost::open(GuestHostOptions::default());
    let (policies, _watch) = without_policies();
    let follower = Follower {
        name: "replica".to_owned(),
        hooks: &[Hook::Validation],
        active: ActivePolicies::new(host.await.unwrap()),
        sources,
        policies,
        permits: LoadPermits::default(),
        searches: SearchPermits::default(),
        reports: watch::Sender::new(Report::default()),
    };
    let stop = CancellationToken::new();
    let following = timeout(PRUNE_PERIOD * 2, follower.follow(&stop));
    assert!(following.await.is_err());
    assert_eq!(stored(), 0);
}
