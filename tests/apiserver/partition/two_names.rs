//! One V-IPU controller that is in the admin's list under two names.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::PartitionPhase;
use ipu_api::naming;
use ipu_api::vipu_controller::{VIPUController, VIPUControllerStatus};

use super::fixture::{Fixture, controller};

impl Fixture {
    /// The status of the VIPUController of this address once `is_so`, or `None` if it is gone.
    async fn once_status(
        &self,
        address: &str,
        what: &str,
        is_so: impl Fn(Option<&VIPUControllerStatus>) -> bool,
    ) -> Option<VIPUControllerStatus> {
        let name = naming::vipu_controller(address);
        eventually(&format!("{name}: {what}"), async || {
            let object: Option<VIPUController> = self.controllers().get_opt(&name).await.unwrap();
            let status = object.map(|object| object.status.unwrap_or_default());
            Seen::when(status, |status| is_so(status.as_ref()))
        })
        .await
    }
}

/// The reason of a condition, if it has this status.
fn reason<'a>(status: Option<&'a VIPUControllerStatus>, type_: &str, is: &str) -> Option<&'a str> {
    let mut conditions = status?.conditions.iter();
    let found = conditions.find(|condition| condition.type_ == type_ && condition.status == is);
    found.map(|condition| condition.reason.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_under_two_names_counts_once() {
    let mut fixture = Fixture::without_proxy(&[16]).await;
    let first = fixture.pods[0].address.to_string();
    let second = format!("localhost:{}", fixture.pods[0].address.port());
    fixture.list_addresses(&[&second]).await;
    fixture.start_proxy().await;
    let job = fixture.request("job", 4).await;
    let ready = fixture.once_in(&job, PartitionPhase::Ready).await;
    assert_eq!(controller(&ready), second);
    let ids = fixture.ids();

    fixture.list_addresses(&[&first, &second]).await;
    let duplicate = fixture
        .once_status(&second, "it is a second name", |status| {
            status.is_some_and(|status| status.summary == "Duplicate" && status.partitions == 0)
        })
        .await;
    assert_eq!(
        reason(duplicate.as_ref(), "Listed", "False"),
        Some("SecondName")
    );
    assert_eq!(duplicate.unwrap().ipus.total, 0);
    fixture
        .once(&job, "it has the first name", |job| {
            controller(job) == first
        })
        .await;
    let counted = fixture
        .once_status(&first, "it has the partition", |status| {
            status.is_some_and(|status| status.partitions == 1)
        })
        .await
        .unwrap();
    let ipus = counted.ipus;
    assert_eq!((ipus.total, ipus.used, ipus.used_by_others), (16, 4, 0));

    // The IPUs under the second name are no place to move to, and nobody may take them for empty.
    fixture.drain(&fixture.pods[0]).await;
    fixture
        .once_status(&first, "it is being drained", |status| {
            reason(status, "Drained", "False") == Some("PartitionsLeft")
        })
        .await;
    fixture
        .once(&job, "it waits for another controller", |job| {
            let message = job
                .status
                .as_ref()
                .and_then(|status| status.message.as_deref());
            let why = "is being drained, and no other controller has free capacity";
            message.is_some_and(|message| message.contains(why))
        })
        .await;
    assert_eq!(fixture.ids(), ids);

    fixture.list_addresses(&[&first]).await;
    fixture
        .once_status(&second, "its object is gone", |status| status.is_none())
        .await;
    assert_eq!(fixture.ids(), ids);
}
