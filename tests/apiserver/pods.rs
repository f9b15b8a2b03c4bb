//! Native Pods on a real API server: from a request to a partition, and back.

mod copies;
mod disruptions;
pub(crate) mod fixture;
mod rules;
mod shared;

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::wait::{Seen, eventually, until, within};
use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use vipu_simulator::faults::Method;
use vipu_simulator::pod::Timings;

use self::fixture::{Native, condition, delete, is_bound, once_reported, pod, reconciler, request};
use crate::cut_off::{Writes, uids};
use crate::extent::full_or;
use crate::plugin::Plugin;

/// Longer than any test.
const ENDLESS: u64 = 3_600_000;

/// Median of the time until a Pod has its partition.
const BOUND: Duration = Duration::from_millis(500);

/// Median of the time until the IPUs of a Pod that has ended are free.
const RELEASE: Duration = Duration::from_millis(200);

/// Median of the time until `kubectl ipu why` explains the wait of a Pod.
const WHY: Duration = Duration::from_millis(150);

/// The id of the partition of a Pod.
fn id_of(pod: &Pod) -> String {
    pod.labels()["graphcore.ai/partition-id"].clone()
}

/// The values that the environment of the container refers to, as the kubelet resolves them.
fn environment(pod: &Pod) -> Vec<(String, String)> {
    let env = pod.spec.clone().unwrap().containers[0].env.clone().unwrap();
    let value = |reference: String| {
        let (map, key) = reference.split_once("['").unwrap();
        let key = key.trim_end_matches("']");
        match map {
            "metadata.labels" => pod.labels()[key].clone(),
            _ => pod.annotations()[key].clone(),
        }
    };
    let resolved = env.into_iter().map(|variable| {
        let source = variable.value_from.and_then(|from| from.field_ref);
        let referred = source.map(|source| value(source.field_path));
        (variable.name, referred.or(variable.value).unwrap())
    });
    resolved.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_its_partition_and_releases_it_at_its_end() {
    let native = Native::start(&[16]).await;
    let created = request(&native.pods(), "web", "4").await.unwrap();
    let gates = created.spec.unwrap().scheduling_gates.unwrap();
    assert_eq!(gates[0].name, "graphcore.ai/partition");
    let bound = native.once_bound("web");
    let bound = within("a Pod has its partition", BOUND, bound).await;
    let ids = native.fixture.ids().concat();
    let address = native.fixture.pods[0].address;
    let expected = [
        ("IPUOF_VIPU_API_HOST", address.ip().to_string()),
        ("IPUOF_VIPU_API_PORT", address.port().to_string()),
        ("IPUOF_VIPU_API_PARTITION_ID", ids[0].clone()),
        ("IPUOF_VIPU_API_TIMEOUT", "120".to_owned()),
        ("IPUOF_VIPU_API_GCD_ID", "0".to_owned()),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(environment(&bound), expected);
    let selector = bound.spec.unwrap().node_selector.unwrap();
    assert_eq!(selector["ipunode"], "here");
    once_reported(&native.pods(), "web", "PartitionReady").await;

    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let params = PatchParams::default();
    native
        .pods()
        .patch_status("web", &params, &ended)
        .await
        .unwrap();
    let nothing = native.once_nothing_is_left();
    within("a Pod releases its IPUs", RELEASE, nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_breaks_a_rule_is_refused_and_one_that_was_checked_stays() {
    let native = Native::start(&[16]).await;
    let refused = request(&native.pods(), "three", "3").await.unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}");
    };
    assert_eq!(status.code, 422);
    let cause = &status.details.as_ref().unwrap().causes[0];
    assert_eq!(cause.field, "metadata.annotations[graphcore.ai/ipu]");
    assert!(cause.message.contains("power of two"), "{cause:?}");

    request(&native.pods(), "web", "4").await.unwrap();
    native.once_bound("web").await;
    let params = PatchParams::default();
    for change in [
        json!({"metadata": {"annotations": {"graphcore.ai/ipu": "16"}}}),
        json!({"metadata": {"annotations": {"graphcore.ai/gcd": "1"}}}),
        json!({"metadata": {"labels": {"graphcore.ai/native-pod": null}}}),
        json!({"metadata": {"labels": {"graphcore.ai/partition-id": "p-of-another"}}}),
        json!({"metadata": {"annotations": {"graphcore.ai/vipu-host": null}}}),
    ] {
        native.once_kept("web", &change).await;
    }
    let other = json!({"metadata": {"annotations": {"a/b": "c"}, "labels": {"a": "b"}}});
    native
        .pods()
        .patch("web", &params, &Patch::Merge(other))
        .await
        .unwrap();
    delete(&native.pods(), "web").await;
    native.once_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_free_ipus_says_why_and_gets_them_when_they_are_released() {
    let native = Native::start(&[4]).await;
    let plugin = Plugin::of(&native.fixture.kubeconfig).await;
    request(&native.pods(), "first", "4").await.unwrap();
    native.once_bound("first").await;
    request(&native.pods(), "second", "4").await.unwrap();
    let message = once_reported(&native.pods(), "second", "WaitingForPartition").await;
    let controller = native.fixture.pods[0].address.to_string();
    assert!(message.contains(&controller), "{message}");
    let note = native
        .fixture
        .once_event("second", "WaitingForPartition")
        .await;
    assert!(note.contains(&controller), "{note}");
    let full =
        format!("{controller}: 4 of its 4 IPUs are used, and the largest free partition is 0");
    let parts = [
        "Pod default/second: Pending",
        "graphcore.ai/PartitionReady is False",
        "position 1 of 1 in the queue",
        &full,
        "no free capacity: wait, or request fewer IPUs",
    ];
    within(
        "`why` explains a Pod",
        WHY,
        plugin.why("pod/second", &parts),
    )
    .await;
    delete(&native.pods(), "first").await;
    let bound = native.once_bound("second").await;
    assert_ne!(condition(&bound).unwrap().reason, None);
    delete(&native.pods(), "second").await;
    native.once_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_while_its_partition_forms_leaves_nothing() {
    let native = Native::start(&[16]).await;
    let server = native.fixture.pods[0].server.clone();
    let quick = server.with(|world, _| world.pod.timings);
    server.with(|world, _| {
        world.pod.timings = Timings {
            forming_ms: ENDLESS,
            ..quick
        }
    });
    request(&native.pods(), "web", "4").await.unwrap();
    native
        .fixture
        .once_ids("the partition forms", |ids| ids.concat().len() == 1)
        .await;
    delete(&native.pods(), "web").await;
    server.with(|world, now| {
        world.pod.timings = quick;
        world.pod.finish(now);
    });
    native.once_nothing_is_left().await;
}

/// The user creates a Pod, and deletes it once it has its partition. Returns the UID of the
/// IPUPartition and the id of the partition.
async fn live(native: &Native, name: &str) -> (String, String) {
    request(&native.pods(), name, "4").await.unwrap();
    let bound = native.once_bound(name).await;
    let partitions = native.fixture.partitions();
    let of_pod = async || {
        let all = partitions.list(&ListParams::default()).await.unwrap();
        let mut own = all
            .into_iter()
            .filter(|partition| partition.spec.owner.name == name);
        own.next()
    };
    let own = of_pod().await.unwrap();
    delete(&native.pods(), name).await;
    eventually(&format!("the partition of {name} is gone"), async || {
        Seen::when(of_pod().await, Option::is_none)
    })
    .await;
    (own.uid().unwrap(), id_of(&bound))
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciler_killed_before_any_of_its_writes_gives_each_pod_one_partition() {
    let native = Native::without_reconciler(&[64, 64]).await;
    let plain = native.operator.clone();
    let all = Writes::limited([("whole", None)]);
    let first = reconciler(all.client(&plain));
    let whole = live(&native, "whole").await;
    first.abort();
    let count = all.sent("whole");
    assert!(count > 2, "{count} writes");

    let names: Vec<String> = (0..count)
        .map(|number| format!("cut-{number:02}"))
        .collect();
    let limits = names.iter().enumerate();
    let before = Writes::limited(limits.map(|(number, name)| (name.as_str(), Some(number))));
    let first = reconciler(before.client(&plain));
    let after = Writes::default();
    let lives = names.iter().map(async |name| {
        let used = live(&native, name).await;
        before.complete(name);
        used
    });
    let mut second = None;
    let killed = async {
        before.once_cut_off().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        second = Some(reconciler(after.client(&plain)));
    };
    let ((), mut used) = futures::join!(killed, join_all(lives));
    second.unwrap().abort();

    used.push(whole);
    let (used, ids): (BTreeSet<_>, BTreeSet<_>) = used.into_iter().unzip();
    let created = [all.created(), before.created(), after.created()].concat();
    let made: Vec<_> = uids(&created, "ipupartitions")
        .into_values()
        .flatten()
        .collect();
    assert_eq!(made.len(), 1 + count, "one for each Pod: {made:?}");
    assert_eq!(BTreeSet::from_iter(made), used);
    let calls = native.fixture.pods.iter();
    let calls = calls.flat_map(|pod| pod.server.calls(0));
    let made = calls.filter(|call| call.method == Method::CreatePartition);
    let made: Vec<String> = made.map(|call| call.partition).collect();
    assert_eq!(made.len(), 1 + count, "one for each Pod: {made:?}");
    assert_eq!(BTreeSet::from_iter(made), ids);
    native.once_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_releases_what_a_pod_left_while_no_reconciler_runs() {
    let mut native = Native::start(&[16]).await;
    request(&native.pods(), "web", "4").await.unwrap();
    native.once_bound("web").await;
    native.kill_reconciler().await;
    delete(&native.pods(), "web").await;
    native.once_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_operator_is_down_every_pod_without_a_request_is_created() {
    let mut native = Native::without_reconciler(&[16]).await;
    native.webhooks.stop();
    let refused = request(&native.pods(), "web", "4").await.unwrap_err();
    assert!(
        refused.to_string().contains("mpod.graphcore.ai"),
        "{refused}"
    );
    let plain = pod("plain", &json!({}));
    native
        .pods()
        .create(&PostParams::default(), &plain)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_advertise_the_ipus_of_their_controller_while_they_have_its_label() {
    let mut native = Native::start(&[16, 64]).await;
    let nodes: Api<Node> = Api::all(native.fixture.client.clone());
    let once = async |expected: Option<&str>| {
        eventually("the node advertises what it reaches", async || {
            let node = nodes.get("node").await.unwrap();
            let capacity = node.status.unwrap_or_default().capacity.unwrap_or_default();
            let ipus = capacity.get("graphcore.ai/ipu").map(|ipus| ipus.0.clone());
            Seen::when(ipus, |ipus| ipus.as_deref() == expected)
        })
        .await;
    };
    once(Some("80")).await;
    let listed = [
        (&native.fixture.pods[0], "here"),
        (&native.fixture.pods[1], "elsewhere"),
    ];
    native.fixture.list_labelled(&listed).await;
    // A proxy that becomes leader checks at once.
    native.fixture.kill_proxy().await;
    native.fixture.start_proxy().await;
    once(Some("16")).await;
    // As a kubelet does when it restarts.
    let zero = json!({"status": {"capacity": {"graphcore.ai/ipu": "0"}}});
    nodes
        .patch_status("node", &PatchParams::default(), &Patch::Merge(zero))
        .await
        .unwrap();
    native.fixture.kill_proxy().await;
    native.fixture.start_proxy().await;
    once(Some("16")).await;
    let listed = [(&native.fixture.pods[0], "elsewhere")];
    native.fixture.list_labelled(&listed).await;
    native.fixture.kill_proxy().await;
    native.fixture.start_proxy().await;
    once(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_at_once_get_a_partition_each() {
    const PATIENCE: Duration = Duration::from_mins(15);
    let (pods, controllers) = full_or((500, 16), (125, 4));
    let native = Native::start(&vec![64; controllers]).await;
    let all = futures::stream::iter(0..pods);
    all.for_each_concurrent(16, async |number| {
        request(&native.pods(), &format!("web-{number}"), "2")
            .await
            .unwrap();
    })
    .await;
    let ids: BTreeSet<String> = until("every Pod to have a partition", PATIENCE, async || {
        let found = native.pods().list(&ListParams::default()).await?;
        let bound = found.iter().filter(|pod| is_bound(pod));
        let ids = bound.map(id_of);
        Ok::<_, kube::Error>(Seen::when(ids.collect(), |ids: &BTreeSet<_>| {
            ids.len() == pods
        }))
    })
    .await
    .unwrap();
    let made: BTreeSet<String> = native.fixture.ids().concat().into_iter().collect();
    assert_eq!(made, ids, "each on a controller, and nothing else");
    let at_once = DeleteParams::default().grace_period(0);
    native
        .pods()
        .delete_collection(&at_once, &ListParams::default())
        .await
        .unwrap();
    until("every IPUPartition to go", PATIENCE, async || {
        let left = native
            .fixture
            .partitions()
            .list(&ListParams::default())
            .await?;
        Ok::<_, kube::Error>(Seen::when(left.items.len(), |left| *left == 0))
    })
    .await
    .unwrap();
    native.once_nothing_is_left().await;
}
