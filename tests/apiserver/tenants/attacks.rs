//! What a user of one team tries, and the answer to each attempt.

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::ipupolicy::{IPUPolicy, PolicyPhase};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use super::manifests::{job, native, pod};
use super::{ATTACKER, Cluster, JOB, VICTIM};
use crate::pods::fixture::{condition, is_bound, once_reported};
use crate::processes::RELEASE;

/// The rule of the page about pools, in the words for the attacker.
const POOL_RULE: &str = "set ipunode to pod2, the pool of your namespace";

/// Asserts that an attempt is refused with these words.
#[track_caller]
fn refused(attempt: Result<String, String>, words: &str) {
    let refusal = attempt.expect_err(words);
    assert!(refusal.contains(words), "no {words:?} in {refusal}");
}

/// Whether the attacker has a right: a verb, and a resource of an API group, in a namespace or in
/// the whole cluster.
async fn has_right(cluster: &Cluster, verb: &str, (group, kind): Kind, namespace: &str) -> bool {
    let (resource, subresource) = kind.split_once('/').unwrap_or((kind, ""));
    let review: SubjectAccessReview = serde_json::from_value(json!({
        "metadata": {},
        "spec": {
            "user": "mallory", "groups": [ATTACKER, "system:authenticated"],
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource,
                "subresource": subresource, "namespace": namespace,
            },
        },
    }))
    .unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let reviewed = reviews.create(&PostParams::default(), &review).await;
    reviewed.unwrap().status.unwrap().allowed
}

/// An API group, and a resource with its subresource.
type Kind = (&'static str, &'static str);

/// All verbs on objects.
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// API group of the operator.
const OURS: &str = "graphcore.ai";

/// API group of roles.
const ROLES: &str = "rbac.authorization.k8s.io";

/// Objects of a namespace.
const OBJECTS: [Kind; 8] = [
    (OURS, "ipujobs"),
    (OURS, "ipujobs/scale"),
    (OURS, "ipujobs/status"),
    ("", "pods"),
    ("", "pods/exec"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "serviceaccounts"),
];

/// RBAC: objects of others, cluster-scoped objects, the status, and rights.
pub(super) async fn by_rights(cluster: &Cluster) {
    let own = [(OURS, "ipujobs"), ("", "pods"), ("", "pods/exec")];
    for what in own {
        assert!(
            has_right(cluster, "create", what, ATTACKER).await,
            "{what:?}"
        );
    }
    let cluster_scoped = [
        "ipuaccountings",
        "ipupartitions",
        "ipupolicies",
        "vipucontrollers",
    ];
    let cluster_scoped = cluster_scoped.map(|kind| (OURS, kind));
    let status = [
        (OURS, "ipujobs/status"),
        ("", "pods/status"),
        ("", "pods/ephemeralcontainers"),
        ("", "namespaces"),
    ];
    let roles = [
        (ROLES, "roles"),
        (ROLES, "rolebindings"),
        (ROLES, "clusterrolebindings"),
    ];
    let denied: [(&[Kind], &str, &[&str]); 6] = [
        (&OBJECTS, VICTIM, &VERBS),
        (&OBJECTS, RELEASE, &VERBS),
        (&[("", "serviceaccounts")], VICTIM, &["impersonate"]),
        (&cluster_scoped, "", &VERBS),
        (&status, ATTACKER, &["create", "update", "patch", "delete"]),
        (
            &roles,
            ATTACKER,
            &["create", "update", "patch", "bind", "escalate"],
        ),
    ];
    for (kinds, namespace, verbs) in denied {
        for what in kinds {
            for verb in verbs {
                let has = has_right(cluster, verb, *what, namespace).await;
                assert!(!has, "{verb} {what:?} in {namespace:?}");
            }
        }
    }
    names_the_user(cluster);
}

/// The words of a refusal by RBAC.
fn names_the_user(cluster: &Cluster) {
    let delete = ["delete", "ipujob", JOB, "--namespace", VICTIM];
    let words = "User \"mallory\" cannot delete resource \"ipujobs\"";
    refused(cluster.attacker(&delete), words);
    let label = [
        "label",
        "namespace",
        ATTACKER,
        "ipu-quota=1000",
        "--overwrite",
    ];
    refused(cluster.attacker(&label), "User \"mallory\" cannot");
}

/// Labels by which the operator finds its Pods, in Pods of the attacker.
pub(super) fn with_labels_of_the_operator(cluster: &Cluster) {
    let (native_pod, none) = (json!({"graphcore.ai/native-pod": "true"}), json!({}));
    let mut of_job = native_pod.clone();
    of_job["graphcore.ai/job-uid"] = json!("x");
    let mut forged = pod("forged", &of_job, &json!({"graphcore.ai/ipu": "512"}));
    forged["spec"]["schedulingGates"] = json!([{"name": "graphcore.ai/partition"}]);
    let words = "only the operator creates Pods with graphcore.ai/job-uid";
    refused(cluster.create(&forged, &[]), words);
    // Without that label, the rules see the request.
    forged["metadata"]["labels"] = native_pod.clone();
    refused(cluster.create(&forged, &[]), "512");
    // A Pod without a request is none of the operator's, and loses the label.
    let created = cluster.create(
        &pod("forged", &native_pod, &none),
        &["--output=jsonpath={.metadata.labels}"],
    );
    assert_eq!(created.as_deref(), Ok(""));
    let user = json!({"graphcore.ai/partition-id": "p"});
    let words = "only the operator creates Pods with graphcore.ai/partition-id";
    refused(cluster.create(&pod("forged", &user, &none), &[]), words);
}

/// Changes of a job that the rules have accepted.
pub(super) async fn on_an_own_job(cluster: &Cluster) {
    cluster.create(&job("own", 4), &[]).unwrap();
    cluster.run(ATTACKER, "own").await;
    let namespace = ["--namespace", ATTACKER];
    let kubectl = |args: &[&str]| cluster.attacker(&[args, &namespace].concat());
    for label in ["job-uid-", "job-uid=x", "partition-id=p", "role=launcher"] {
        let label = format!("graphcore.ai/{label}");
        let change = ["label", "pod", "own-worker-0", "--overwrite", &label];
        refused(kubectl(&change), "cannot change");
    }
    let scale = kubectl(&["scale", "ipujob/own", "--replicas=50"]);
    refused(
        scale,
        "the job requests 200 IPUs, and at most 32 are allowed",
    );
    let patch = ["patch", "ipujob", "own", "--type=merge", "--patch"];
    let spec = |spec: Value| {
        let change = json!({"spec": {"workers": {"template": {"spec": spec}}}}).to_string();
        kubectl(&[&patch[..], &[&change]].concat())
    };
    refused(
        spec(json!({"nodeSelector": {"ipunode": "pod1"}})),
        POOL_RULE,
    );
    refused(spec(json!({"nodeSelector": null})), POOL_RULE);
    refused(spec(json!({"hostNetwork": true})), "hostNetwork");
    let admission = r#"{"status":{"admission":{"reservePartitions":true}}}"#;
    let status = [&patch[..], &[admission, "--subresource=status"]].concat();
    refused(kubectl(&status), "ipujobs/status");

    are_refused_when_they_are_created(cluster);
    // A launcher's account, and any other one of the namespace.
    let account = format!("system:serviceaccount:{ATTACKER}:own-launcher");
    let can = [
        "auth",
        "can-i",
        "create",
        "pods/exec",
        "--namespace",
        VICTIM,
        "--as",
        &account,
    ];
    assert!(cluster.admin.kubectl(&can).is_err(), "{account}");
}

/// Jobs with privileges of the host, and in the pool of the other team.
fn are_refused_when_they_are_created(cluster: &Cluster) {
    let mut root = job("root", 4);
    let template = &mut root["spec"]["workers"]["template"]["spec"];
    template["containers"][0]["securityContext"] = json!({"privileged": true});
    refused(cluster.create(&root, &[]), "privileged");
    let mut elsewhere = job("elsewhere", 4);
    let template = &mut elsewhere["spec"]["workers"]["template"]["spec"];
    template["nodeSelector"] = json!({"ipunode": "pod1"});
    refused(cluster.create(&elsewhere, &[]), POOL_RULE);
}

/// Changes of a native Pod that the rules have accepted.
pub(super) async fn on_a_native_pod(cluster: &Cluster) {
    cluster.create(&native("notebook", 4), &[]).unwrap();
    let pods = cluster.pods(ATTACKER);
    eventually("the Pod has its partition", async || {
        let pod = pods.get("notebook").await.unwrap();
        Seen::when((is_bound(&pod), condition(&pod)), |(is_bound, _)| *is_bound)
    })
    .await;
    let namespace = ["--namespace", ATTACKER];
    let kubectl = |args: &[&str]| cluster.attacker(&[args, &namespace].concat());
    let image = ["set", "image", "pod/notebook", "main=evil.example.com/x:1"];
    refused(kubectl(&image), "use an image of registry.example.com");
    let more = [
        "annotate",
        "pod",
        "notebook",
        "graphcore.ai/ipu=8",
        "--overwrite",
    ];
    refused(kubectl(&more), "cannot change");
    for label in [
        "native-pod-",
        "job-uid=x",
        "partition-id=p",
        "partition-id-",
    ] {
        let label = format!("graphcore.ai/{label}");
        let change = ["label", "pod", "notebook", "--overwrite", &label];
        refused(kubectl(&change), "cannot change");
    }
    for selector in [json!({"ipunode": "pod1"}), json!({})] {
        let mut elsewhere = native("elsewhere", 4);
        elsewhere["spec"]["nodeSelector"] = selector;
        refused(cluster.create(&elsewhere, &[]), POOL_RULE);
    }
    let mut root = native("root", 4);
    root["spec"]["hostNetwork"] = json!(true);
    refused(cluster.create(&root, &[]), "violates PodSecurity");
    kubectl(&["delete", "pod", "notebook", "--grace-period=0", "--force"]).unwrap();
}

/// Pods that share an IPUPartition of the namespace, which the rules see as well.
pub(super) fn in_a_shared_partition(cluster: &Cluster) {
    let annotations = json!({"graphcore.ai/partition": "own"});
    let sharing = pod("sharing", &json!({}), &annotations);
    let mut other = sharing.clone();
    other["spec"]["containers"][0]["image"] = json!("evil.example.com/x:1");
    let image_rule = "spec.containers: use an image of registry.example.com";
    refused(cluster.create(&other, &[]), image_rule);
    let mut elsewhere = sharing.clone();
    elsewhere["spec"]["nodeSelector"] = json!({"ipunode": "pod1"});
    refused(cluster.create(&elsewhere, &[]), POOL_RULE);
    cluster.create(&sharing, &[]).unwrap();
    let namespace = ["--namespace", ATTACKER];
    let kubectl = |args: &[&str]| cluster.attacker(&[args, &namespace].concat());
    let image = ["set", "image", "pod/sharing", "main=evil.example.com/x:1"];
    refused(kubectl(&image), "use an image of registry.example.com");
    kubectl(&["delete", "pod", "sharing", "--grace-period=0", "--force"]).unwrap();
}

/// A job above the quota waits, and gets nothing.
pub(super) async fn above_the_quota(cluster: &Cluster) {
    cluster.create(&job("more", 16), &[]).unwrap();
    let jobs: Api<IPUJob> = Api::namespaced(cluster.client.clone(), ATTACKER);
    eventually("the job waits for its quota", async || {
        let status = jobs.get("more").await.unwrap().status;
        let status = serde_json::to_string(&status).unwrap();
        Seen::when(status, |status| status.contains("may have 16"))
    })
    .await;
    let partitions = partitions(cluster).await;
    let more = partitions.iter().find(|one| one.spec.owner.name == "more");
    let attempts = more.unwrap().status.clone().unwrap_or_default().attempts;
    assert!(attempts.is_empty(), "{attempts:?}");
}

async fn partitions(cluster: &Cluster) -> Vec<IPUPartition> {
    let partitions: Api<IPUPartition> = Api::all(cluster.client.clone());
    partitions.list(&ListParams::default()).await.unwrap().items
}

/// The name of an IPUPartition is no right to use it.
pub(super) async fn on_a_partition_of_another(cluster: &Cluster) {
    let partitions = partitions(cluster).await.into_iter();
    let mut theirs = partitions.filter(|one| one.spec.owner.namespace == VICTIM);
    let theirs = theirs.next().unwrap().name_any();
    let shared = json!({"graphcore.ai/partition": theirs, "graphcore.ai/gcd": "0"});
    let shared = pod("shared", &json!({}), &shared);
    cluster.create(&shared, &[]).unwrap();
    let pods = cluster.pods(ATTACKER);
    once_reported(&pods, "shared", "PartitionNotFound").await;
    assert!(!is_bound(&pods.get("shared").await.unwrap()));
}

/// Dry runs of a large object switch no policy off.
pub(super) fn with_dry_runs(cluster: &Cluster) {
    let mut flood = job("flood", 4);
    let template = &mut flood["spec"]["workers"]["template"]["spec"];
    let containers = (0..2_000).map(|number| {
        let mut container = template["containers"][0].clone();
        container["name"] = json!(format!("c{number}"));
        container
    });
    let containers: Vec<Value> = containers.collect();
    template["containers"] = json!(containers);
    for _ in 0..12 {
        // A guest that cannot process it would count as one without an answer.
        let _ = cluster.create(&flood, &["--dry-run=server"]);
    }
    let get = ["get", "ipupolicies", "--output=json"];
    let found: Value = serde_json::from_str(&cluster.admin.kubectl(&get).unwrap()).unwrap();
    for policy in found["items"].as_array().unwrap() {
        let policy: IPUPolicy = serde_json::from_value(policy.clone()).unwrap();
        let status = policy.status.unwrap_or_default();
        assert_eq!(status.phase, PolicyPhase::Active, "{status:?}");
        assert_eq!(status.rolled_back, None);
    }
    let mut elsewhere = job("elsewhere", 4);
    elsewhere["spec"]["workers"]["template"]["spec"]["nodeSelector"] = json!({"ipunode": "pod1"});
    refused(cluster.create(&elsewhere, &["--dry-run=server"]), POOL_RULE);
}
