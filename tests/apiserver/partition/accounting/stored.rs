//! When an account is written, and what it survives.

use std::time::{Duration, Instant};

use cluster::wait::{Seen, eventually};
use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::ipupartition::PartitionPhase;
use ipu_api::naming;
use kube::ResourceExt;
use serde_json::json;

use crate::partition::fixture::Fixture;

/// The leader writes an account no more often.
const AGE: Duration = Duration::from_mins(1);

impl Fixture {
    /// The IPUAccounting of a controller once `is_so`.
    async fn once_accounting(
        &self,
        pod: usize,
        what: &str,
        is_so: impl Fn(&IPUAccounting) -> bool,
    ) -> IPUAccounting {
        let name = naming::vipu_controller(&self.pods[pod].address.to_string());
        eventually(&format!("{name}: {what}"), async || {
            let object = self.accountings().get_opt(&name).await.unwrap();
            let seen = format!("{object:#?}");
            object.filter(|object| is_so(object)).ok_or(seen)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_figures_does_not_write_the_account() {
    let fixture = Fixture::start(&[8]).await;
    let pod = &fixture.pods[0];
    let begun = Instant::now();
    let first = fixture.once_accounting(0, "it is written", |_| true).await;
    let object = fixture.once_controller(pod, "it is idle", |_| true).await;
    assert_eq!(first.name_any(), object.name_any());
    assert_eq!(first.labels(), object.labels());
    assert_eq!(json!(object)["status"].get("accounting"), None);
    let wanted = fixture.request("counted", 4).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
    fixture
        .once_controller(pod, "it counts the IPUs", |object| {
            let status = object.status.as_ref();
            status.is_some_and(|status| status.ipus.used == 4)
        })
        .await;
    let after = fixture.once_accounting(0, "it is there", |_| true).await;
    let is_same = after.resource_version() == first.resource_version();
    assert!(is_same || begun.elapsed() >= AGE, "it was written again");
    // It is written when it is due, without any change.
    fixture
        .once_accounting(0, "it is written again", |later| {
            later.spec.accounting.until.0 > first.spec.accounting.until.0
        })
        .await;
}

/// An entry is removed from the list by mistake, and comes back with another leader.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_survives_its_vipucontroller_and_both_proxies() {
    let mut fixture = Fixture::start(&[8, 4]).await;
    let first = fixture.once_accounting(0, "it is written", |_| true).await;
    let pods = &fixture.pods;
    fixture.list_controllers(&[&pods[1]]).await;
    let name = first.name_any();
    eventually("the VIPUController is gone", async || {
        let object = fixture.controllers().get_opt(&name).await.unwrap();
        Seen::when(object.map(|object| object.status), Option::is_none)
    })
    .await;
    fixture.kill_proxy().await;
    fixture.start_proxy().await;
    let left = fixture.once_accounting(0, "it is there", |_| true).await;
    let pods = &fixture.pods;
    fixture.list_controllers(&[&pods[0], &pods[1]]).await;
    let returned = fixture
        .once_accounting(0, "it is continued", |later| {
            later.spec.accounting.until.0 > left.spec.accounting.until.0
        })
        .await;
    let (left, returned) = (left.spec, returned.spec);
    assert_eq!((returned.ipus, &returned.address), (8, &left.address));
    assert_eq!(returned.accounting.since, left.accounting.since);
    let [before, after] = [&left, &returned].map(|spec| spec.accounting.total.unallocated);
    assert!(after.free >= before.free, "{before:?}, {after:?}");
    assert!(after.unknown > before.unknown, "{before:?}, {after:?}");
}
