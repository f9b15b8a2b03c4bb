//! Resets that an owner requests: one succeeds, one must wait, and some fail.

use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Fail, LostReply, Method, Order};

use super::fixture::{Fixture, id};

/// Requests reset number `generation`.
async fn ask(fixture: &Fixture, partition: &IPUPartition, generation: i64) {
    let change = json!({"spec": {"resetGeneration": generation}});
    fixture.patch(partition, change).await.unwrap();
}

/// Returns the object once that reset is done and the partition is ready again.
async fn once_reset(fixture: &Fixture, partition: &IPUPartition, generation: i64) -> IPUPartition {
    let what = format!("reset {generation} was carried out");
    let is_so = |object: &IPUPartition| {
        let status = object.status.clone().unwrap_or_default();
        status.observed_reset_generation == generation && status.phase == PartitionPhase::Ready
    };
    fixture.once(partition, &what, is_so).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reset_is_carried_out_once_on_the_same_partition() {
    let fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    for generation in [1, 2] {
        ask(&fixture, &ready, generation).await;
        let reset = once_reset(&fixture, &ready, generation).await;
        assert_eq!(id(&reset), id(&ready));
        let calls = fixture.calls(0, Method::ResetPartition);
        assert_eq!(i64::try_from(calls).unwrap(), generation);
    }
    assert_eq!(fixture.calls(0, Method::CreatePartition), 1);
    fixture.delete(&ready).await;
    fixture.once_gone(&ready).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_waits_until_no_pod_uses_the_partition() {
    let fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    let pods = fixture.start_pod("user-of-reset", &id(&ready)).await;
    ask(&fixture, &ready, 1).await;
    fixture
        .once(&ready, "it says what the reset waits for", |object| {
            let status = object.status.clone().unwrap_or_default();
            let message = status.message.unwrap_or_default();
            message.contains("waits for 1 live Pods") && status.phase == PartitionPhase::Ready
        })
        .await;
    assert_eq!(fixture.calls(0, Method::ResetPartition), 0);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user-of-reset", &at_once).await.unwrap();
    let reset = once_reset(&fixture, &ready, 1).await;
    assert_eq!(id(&reset), id(&ready));
    assert_eq!(fixture.calls(0, Method::ResetPartition), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_fails_or_is_not_answered_leads_to_a_new_partition() {
    let failing = Order {
        fail: Some(Fail {
            code: CodeName::Internal,
            message: "link 3 does not train".to_owned(),
        }),
        ..Order::on(Method::ResetPartition)
    };
    let unanswered = Order {
        lose_reply: Some(LostReply::Cut),
        ..Order::on(Method::ResetPartition)
    };
    for (name, order, said) in [
        ("failing", failing, "link 3 does not train"),
        ("unanswered", unanswered, "replacing it"),
    ] {
        let fixture = Fixture::start(&[16]).await;
        let wanted = fixture.request(name, 4).await;
        let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
        fixture.pods[0].server.order(order);
        ask(&fixture, &ready, 1).await;
        let fresh = once_reset(&fixture, &ready, 1).await;
        assert_ne!(id(&fresh), id(&ready));
        assert_eq!(fixture.ids(), [[id(&fresh)]]);
        assert_eq!(fixture.calls(0, Method::ResetPartition), 1);
        let note = fixture.once_event(&ready.name_any(), "Replacing").await;
        assert!(note.contains(&id(&ready)) && note.contains(said), "{note}");
        fixture.delete(&fresh).await;
        fixture.once_gone(&fresh).await;
        assert_eq!(fixture.ids(), [[""; 0]]);
    }
}
