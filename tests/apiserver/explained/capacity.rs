//! Causes for which no V-IPU controller serves a request now.

use serde_json::{Value, json};

use super::fixture::{contains, job};
use super::world::World;
use crate::job::parallel;

/// A cause: the cluster in which it occurs, and the expected explanations.
struct Cause {
    world: World,
    /// The waiting request.
    job: Value,
    /// The same request as a query.
    query: Value,
    /// The reason, in all places.
    text: &'static str,
    /// Further text of `kubectl ipu why`.
    page: &'static [&'static str],
}

/// The cause of a job of one worker on 4 IPUs.
fn of_single(world: World, text: &'static str, page: &'static [&'static str]) -> Cause {
    Cause {
        world,
        job: job("train", 4),
        query: json!({"size": 4}),
        text,
        page,
    }
}

/// Waits until the cause is named in the conditions, by the REST API, the plugin and the dashboard.
async fn is_named_everywhere(cause: &Cause) {
    let explained = cause.world.start().await;
    explained.submit(&cause.job).await;
    let text = cause.text;
    explained.once_partition_waits("train", text).await;
    let waiting = ["PartitionsReady", "WaitingForPartition", text];
    explained.once_condition("train", waiting).await;
    let reader = &explained.reader;
    let is_answered = |answer: &Value| {
        let mut passed = answer["passedOver"].as_array().into_iter().flatten();
        answer["decision"] == "wait" && passed.any(|one| contains(&one["reason"], text))
    };
    reader.query(text, &cause.query, is_answered).await;
    let mut parts = vec![text];
    parts.extend(cause.page);
    reader.why("train", &parts).await;
    reader
        .queue(|queue| {
            let rows = queue["rows"].as_array().into_iter().flatten();
            let mut own = rows.filter(|row| row["owner"]["name"] == "train");
            own.any(|row| {
                let mut reasons = row["reasons"].as_array().into_iter().flatten();
                row["position"].is_u64() && reasons.any(|one| contains(&one["reason"], text))
            })
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn free_capacity_that_is_missing_or_scattered() {
    for cause in [
        of_single(
            World::Full,
            "8 of its 8 IPUs are used, and the largest free partition is 0, smaller than the 4 requested",
            &[
                "no free capacity: wait, or request fewer IPUs",
                "position 1 of 1 in the queue",
            ],
        ),
        of_single(
            World::Fragmented,
            "4 of its 8 IPUs are free, but not together: a partition can have 2 now, fewer than the 4 requested",
            &[
                "free, but not together: wait until the IPUs beside them are released",
                "largest fit now: 2 IPUs on",
            ],
        ),
        of_single(
            World::FragmentedWithoutPlaces,
            "4 of its 8 IPUs are free, perhaps not together",
            &[
                "free, but not together: wait until the IPUs beside them are released",
                "largest fit now: 2 IPUs on",
            ],
        ),
    ] {
        is_named_everywhere(&cause).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_controller_that_could_serve_it_is_closed() {
    for cause in [
        of_single(
            World::Cordoned,
            "it is cordoned and gets no new partitions",
            &["cordoned or drained: wait", "largest fit now: none"],
        ),
        Cause {
            world: World::LargeCordoned,
            job: job("train", 8),
            query: json!({"size": 8}),
            text: "it is cordoned and gets no new partitions",
            page: &["what would fit now: 4 IPUs instead of 8, on"],
        },
        of_single(
            World::Draining,
            "it is being drained and gets no new partitions",
            &["cordoned or drained: wait", "largest fit now: none"],
        ),
        of_single(
            World::Unreachable,
            "does not answer: it cannot be reached",
            &["unreachable: admin: read the proxy's log"],
        ),
        of_single(
            World::Refusing,
            "not today (ResourceExhausted); 8 of its 8 IPUs are free, perhaps not together",
            &["tried without success: wait, the operator tries again"],
        ),
    ] {
        is_named_everywhere(&cause).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_do_not_have_the_labels() {
    let text = "no node is labelled ipunode=far; label those that reach its IPUs";
    let remedy = &["no node has its label: kubectl label node"];
    is_named_everywhere(&of_single(World::WithoutNodes, text, remedy)).await;

    let text = "its nodes are labelled ipunode=there, and the Pods ask for ipunode=here";
    let page = &[
        "the nodeSelector asks for other nodes: wait for the controllers that it allows",
        "no free capacity: wait",
        "largest fit now: none",
    ];
    let mut cause = of_single(World::OtherNodes, text, page);
    let selector = json!({"ipunode": "here"});
    cause.job["spec"]["workers"]["template"]["spec"]["nodeSelector"] = selector.clone();
    cause.query["nodeSelector"] = selector;
    is_named_everywhere(&cause).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_for_an_earlier_request_and_siblings_of_a_gang() {
    let reserved = Cause {
        world: World::Reserved,
        job: job("train", 2),
        query: json!({"size": 2}),
        text: "its free capacity is reserved for default/large (8 IPUs), which has waited since ",
        page: &[
            "reserved for an earlier request: wait",
            "position 2 of 2 in the queue",
            "is reserved for default/large (8 IPUs)",
            "largest fit now: none",
        ],
    };
    is_named_everywhere(&reserved).await;

    let mut gang = parallel("train");
    gang["spec"]["jobInstances"] = json!(2);
    let siblings = Cause {
        world: World::HalfFull,
        job: gang,
        query: json!({"size": 4, "gangSize": 2}),
        text: "2 partitions of 4 IPUs are useful only together, and there is free capacity for 1 of them now",
        page: &["useful only together with other partitions: wait until all fit"],
    };
    is_named_everywhere(&siblings).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_a_quota_or_a_reason_of_its_own() {
    let remedy = &["in the words of the placement guest"];
    for (world, text) in [
        (
            World::Quota,
            "namespace default uses 4 IPUs and may have 4: 4 more wait until some are released",
        ),
        (
            World::Policy,
            "8 of its 8 IPUs are used, and no 4 are adjacent",
        ),
    ] {
        is_named_everywhere(&of_single(world, text, remedy)).await;
    }
}
