//! Pods beyond those of the examples: host networks, many workers, the user's own words.

use std::sync::Arc;

use ipu_api::ipujob::IPUJob;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::fixtures::{JobFixture, parallel, settings};
use super::world::{controller, environment};
use crate::build::{PodSettings, partitions, workers};
use crate::facts::partition::PlacedPartition;

pub(super) fn held() -> PlacedPartition {
    PlacedPartition {
        controller: Arc::new(controller()),
        id: "p-sample-0".to_owned(),
        resets: 0,
    }
}

pub(super) fn worker(job: &IPUJob, settings: &PodSettings, gcd: u32) -> Pod {
    workers::worker(&job.valid(), settings, (0, gcd, 0), &held())
}

#[test]
fn host_network_brings_dns_and_privilege_and_off_brings_neither() {
    let job = IPUJob::sample().template(&json!({"spec": {"containers": [
        {"name": "main", "image": "a", "securityContext": {"allowPrivilegeEscalation": false}},
        {"name": "side", "image": "b"},
    ]}}));
    let on = PodSettings {
        worker_host_network: true,
        ..settings()
    };
    let spec = worker(&job, &on, 0).spec.unwrap();
    assert_eq!(spec.host_network, Some(true));
    assert_eq!(spec.dns_policy.as_deref(), Some("ClusterFirstWithHostNet"));
    for container in &spec.containers {
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.privileged, Some(true));
        assert_eq!(context.allow_privilege_escalation, None);
    }
    let spec = worker(&job, &settings(), 0).spec.unwrap();
    assert_eq!((spec.host_network, spec.dns_policy), (None, None));
    assert_eq!(spec.containers[1].security_context, None);
}

#[test]
fn workers_avoid_failed_nodes_only_if_the_admin_checks_nodes() {
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let passed = json!({"key": "graphcore.ai/ipu-ready", "operator": "NotIn", "values": ["false"]});
    let affinity = |terms: Value| {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    };
    let checked = PodSettings {
        avoid_failed_nodes: true,
        ..settings()
    };
    let built = |template: Value, settings: &PodSettings| {
        let job = IPUJob::sample().template(&json!({"spec": {"affinity": template}}));
        json!(worker(&job, settings, 0).spec.unwrap().affinity)
    };
    assert_eq!(built(json!(null), &settings()), json!(null));
    let alone = affinity(json!([{"matchExpressions": [passed]}]));
    assert_eq!(built(json!(null), &checked), alone);
    // A node needs to match one of the terms, and an empty one matches no node.
    let own = affinity(json!([{"matchExpressions": [zone]}, {"matchFields": [field]}, {}]));
    assert_eq!(built(own.clone(), &settings()), own);
    let both = affinity(json!([
        {"matchExpressions": [zone, passed]},
        {"matchExpressions": [passed], "matchFields": [field]},
        {},
    ]));
    assert_eq!(built(own, &checked), both);
}

#[test]
fn workers_of_a_launcher_have_different_host_names() {
    let host_name = |name: &str, template: Value, gcd| {
        let mut job = parallel().template(&template);
        job.metadata.name = Some(name.to_owned());
        worker(&job, &settings(), gcd).spec.unwrap().hostname
    };
    let chosen = json!({"spec": {"hostname": "mine"}});
    // The kubelet takes the name of the Pod.
    assert_eq!(host_name("mnist", json!({}), 1), None);
    let dotted = host_name("parallel.v1", json!({}), 1);
    assert_eq!(dotted.as_deref(), Some("parallel-v1-worker-1"));
    let long = "j".repeat(64);
    let (first, second) = (
        host_name(&long, json!({}), 0),
        host_name(&long, json!({}), 1),
    );
    assert!(first.is_some() && first != second, "{first:?} {second:?}");
    let chosen = host_name("parallel.v1", chosen, 1);
    assert_eq!(chosen.as_deref(), Some("mine"));
    let mut job = IPUJob::sample();
    job.metadata.name = Some("parallel.v1".to_owned());
    let alone = worker(&job, &settings(), 0).spec.unwrap();
    assert_eq!(alone.hostname, None, "there is no mpirun");
}

#[test]
fn a_placement_policy_may_know_of_the_job_what_it_says_of_itself() {
    let mut job = IPUJob::sample().template(&json!({"spec": {"priorityClassName": "urgent"}}));
    job.metadata.labels = Some([("team".to_owned(), "vision".to_owned())].into());
    job.metadata.annotations = Some(
        [
            ("cost-centre".to_owned(), "7".to_owned()),
            ("long".to_owned(), "x".repeat(2048)),
        ]
        .into(),
    );
    let metadata = partitions::partition(&job.valid(), 0, &[])
        .spec
        .owner_metadata;
    assert_eq!(metadata.labels["team"], "vision");
    assert_eq!(
        metadata.annotations.keys().collect::<Vec<_>>(),
        ["cost-centre"]
    );
    assert_eq!(metadata.priority_class_name.as_deref(), Some("urgent"));
}

#[test]
fn annotations_ask_for_partitions_of_another_kind() {
    use ipu_api::labels::{RECONFIGURABLE_ANNOTATION, RELOCATABLE_ANNOTATION};
    let asked = |annotations: &[(&str, &str)]| {
        let mut job = IPUJob::sample();
        job.metadata.annotations = Some(
            annotations
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        );
        let options = partitions::partition(&job.valid(), 0, &[]).spec.options;
        (options.reconfigurable, options.relocatable)
    };
    assert_eq!(asked(&[]), (false, false));
    assert_eq!(asked(&[(RECONFIGURABLE_ANNOTATION, "true")]), (true, false));
    assert_eq!(asked(&[(RELOCATABLE_ANNOTATION, "true")]), (false, true));
    assert_eq!(asked(&[(RELOCATABLE_ANNOTATION, "yes")]), (false, false));
}

#[test]
fn placement_knows_which_nodes_the_workers_may_use() {
    let job = IPUJob::sample().template(&json!({"spec": {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "ipu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}],
        }}},
    }}));
    let mut job = job.valid();
    let flavor = json!({
        "name": "worker", "nodeSelector": {"rack": "1"}, "tolerations": [{"key": "flavor"}],
    });
    job.pod_set_updates = vec![serde_json::from_value(flavor).unwrap()];
    let options = partitions::partition(&job, 0, &[]).spec.options;
    assert_eq!(
        json!(options.node_selector),
        json!({"pool": "a", "rack": "1"})
    );
    let expected = json!({
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}],
        "tolerations": [{"key": "ipu"}, {"key": "flavor", "value": ""}],
    });
    assert_eq!(json!(options.scheduling), expected);
}

#[test]
fn placement_knows_the_node_that_a_template_names() {
    let scheduling = |spec: Value| {
        let job = IPUJob::sample().template(&json!({"spec": spec}));
        let partition = partitions::partition(&job.valid(), 0, &[]);
        json!(partition.spec.options.scheduling)
    };
    let node = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let alone = json!({"nodeSelectorTerms": [{"matchFields": [node]}]});
    assert_eq!(scheduling(json!({"nodeName": "n1"})), alone);
    assert_eq!(scheduling(json!({"nodeName": ""})), json!({}));
    let zone = json!({"key": "zone", "operator": "Exists"});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [zone]}, {}],
    }}});
    let both =
        json!({"nodeSelectorTerms": [{"matchExpressions": [zone], "matchFields": [node]}, {}]});
    assert_eq!(
        scheduling(json!({"nodeName": "n1", "affinity": affinity})),
        both
    );
}

#[test]
fn a_users_own_variable_is_never_overwritten_and_ours_come_first() {
    let job = IPUJob::sample().template(&json!({"spec": {"containers": [
        {"name": "main", "image": "a", "env": [
            {"name": "IPUOF_VIPU_API_TIMEOUT", "value": "9"},
            {"name": "MINE", "value": "$(IPUOF_VIPU_API_HOST)"},
        ]},
        {"name": "side", "image": "b"},
    ]}}));
    let pod = worker(&job, &settings(), 0);
    let main = environment(&pod, 0);
    assert_eq!(main["IPUOF_VIPU_API_TIMEOUT"], "9");
    assert_eq!(main["IPUOF_VIPU_API_HOST"], "pod1");
    let last = pod.spec.as_ref().unwrap().containers[0]
        .env
        .as_ref()
        .unwrap();
    assert_eq!(last.last().unwrap().name, "MINE");
    assert_eq!(environment(&pod, 1)["IPUOF_VIPU_API_GCD_ID"], "0");
}

#[test]
fn popdist_is_set_where_there_are_replicas_to_share() {
    let job = IPUJob::sample()
        .ipus("16")
        .workers("4")
        .replicas_per_worker("2");
    let env = environment(&worker(&job, &settings(), 3), 0);
    for (name, value) in [
        ("IPUOF_VIPU_API_GCD_ID", "3"),
        ("POPDIST_NUM_TOTAL_REPLICAS", "8"),
        ("POPDIST_NUM_LOCAL_REPLICAS", "2"),
        ("POPDIST_NUM_IPUS_PER_REPLICA", "2"),
        ("POPDIST_REPLICA_INDEX_OFFSET", "6"),
        ("POPDIST_LOCAL_INSTANCE_INDEX", "0"),
        ("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "1"),
    ] {
        assert_eq!(env[name], value, "{name}");
    }
    let single = environment(&worker(&IPUJob::sample(), &settings(), 0), 0);
    assert!(single.keys().all(|name| !name.starts_with("POPDIST_")));
}

#[test]
fn labels_of_the_operator_win_and_the_users_stay() {
    let job = IPUJob::sample().template(&json!({"metadata": {
        "labels": {"app": "mine", "graphcore.ai/partition-id": "stolen"},
        "annotations": {"kubectl.kubernetes.io/default-container": "side"},
    }}));
    let meta = worker(&job, &settings(), 0).metadata;
    let labels = meta.labels.unwrap();
    assert_eq!(labels["app"], "mine");
    assert_eq!(labels["graphcore.ai/partition-id"], "p-sample-0");
    assert_eq!(
        meta.annotations.unwrap()["kubectl.kubernetes.io/default-container"],
        "side"
    );
}

#[test]
fn workers_of_a_launcher_wait_and_other_containers_run() {
    let job = IPUJob::sample()
        .launcher(&["mpirun"])
        .template(&json!({"spec": {
            "initContainers": [{"name": "fetch", "image": "c"}],
            "restartPolicy": "Always",
            "containers": [
                {"name": "main", "image": "a", "command": ["theirs"], "args": ["x"],
                 "startupProbe": {}, "readinessProbe": {}, "livenessProbe": {}},
                {"name": "side", "image": "b", "command": ["watch"], "readinessProbe": {}},
            ],
        }}));
    let spec = worker(&job, &settings(), 0).spec.unwrap();
    let first = &spec.containers[0];
    assert_eq!(
        first.command.as_deref(),
        Some(
            &[
                "/ipu-operator-agent/ipu-agent".to_owned(),
                "idle".to_owned(),
                "--grace-seconds".to_owned(),
                "28".to_owned(),
            ][..]
        )
    );
    assert_eq!(first.args, None);
    let probes = [
        &first.startup_probe,
        &first.readiness_probe,
        &first.liveness_probe,
    ];
    assert_eq!(probes, [&None; 3], "they check the program");
    assert!(spec.containers[1].readiness_probe.is_some());
    assert_eq!(
        spec.containers[1].command.as_deref(),
        Some(&["watch".to_owned()][..])
    );
    assert_eq!(spec.init_containers.unwrap().len(), 2);
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
}

#[test]
fn no_program_is_restarted_inside_its_pod() {
    let rules = json!([
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}},
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [4]}},
    ]);
    let container = |name: &str| {
        json!({
            "name": name, "image": "a", "restartPolicy": "OnFailure", "restartPolicyRules": rules,
        })
    };
    let spec = json!({"containers": [container("main"), container("side")]});
    for job in [IPUJob::sample(), parallel()] {
        let pod = worker(&job.template(&json!({"spec": spec})), &settings(), 0);
        let containers = json!(pod.spec.unwrap().containers);
        for field in ["restartPolicy", "restartPolicyRules"] {
            assert!(containers[0][field].is_null(), "{field}");
        }
        assert_eq!(containers[1]["restartPolicy"], "OnFailure");
        let left = containers[1]["restartPolicyRules"].as_array().unwrap();
        assert_eq!(left[..], rules.as_array().unwrap()[..1]);
    }
}
