//! Compares the plugin of kubectl with the operator, because it does not depend on the operator's
//! packages: the order of the queue, the advice about reasons, the states of IPU-hours, and the
//! limits of texts. Also compares its commands with their document.

use std::collections::BTreeSet;
use std::fs;

use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::vipu_controller::VIPUController;
use ipu_kubectl::advice::{OPERATOR, WAITING};
use ipu_kubectl::cordon::reason;
use ipu_kubectl::goodput::{GoodputBy, JobCollector, Since, goodput};
use ipu_kubectl::{completion, queue as plugin};
use ipu_placement::queue;
use jiff::Timestamp;
use kube::CustomResourceExt;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::sources::{pages_that_begin_with, repository, rust_files};

/// The pages of messages without Markdown formatting, which the plugin does not print.
fn messages() -> String {
    pages_that_begin_with("messages").replace('`', "")
}

/// An IPUPartition whose position and gang depend on its number.
fn partition(number: u32) -> IPUPartition {
    let owner = number % 7;
    let phase = ["Pending", "Creating", "Ready", "Pending"][(number % 4) as usize];
    let gang = (owner < 3).then_some(2);
    let second = (number * 31) % 40;
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUPartition",
        "metadata": {
            "name": format!("p-{}", (number * 17) % 97),
            "uid": format!("uid-{number}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": "default",
                "name": format!("job-{owner}"), "uid": format!("owner-{owner}"),
            },
            "slot": number, "ipus": 1, "gcds": 1, "options": {"gangSize": gang},
        },
        "status": {"phase": phase},
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn the_plugin_orders_the_queue_as_the_proxy_does() {
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let all: Vec<_> = (0..80).map(partition).collect();
    let mut served = queue::entries(all.iter(), now);
    queue::in_order(&mut served);
    let served: Vec<_> = served.iter().map(|request| &*request.name).collect();
    assert_eq!(served.len(), 40);
    assert_eq!(plugin::order(&all, now), served);
}

#[test]
fn the_advice_about_a_reason_is_that_of_the_pages_of_messages() {
    let messages = messages();
    for (reasons, advice) in OPERATOR {
        for word in *reasons {
            let mut rows = messages.lines().filter(|line| line.starts_with("| "));
            let says = |row: &str| {
                let first = row.split('|').nth(1).unwrap_or_default();
                let mut words = first.split(|end: char| !end.is_alphanumeric());
                words.any(|found| found == *word) && row.contains(advice)
            };
            assert!(rows.any(says), "{word}: {advice}");
        }
    }
}

#[test]
fn causes_of_waiting_are_those_of_the_pages_of_messages_and_of_the_code() {
    let messages = messages();
    let mut files = rust_files("host/partitions/src");
    files.extend(rust_files("host/ledger/src"));
    files.extend(rust_files("host/placement/src"));
    files.extend(rust_files("guests/sdk/src"));
    for one in WAITING {
        let row = format!("| {} | {}", one.cause, one.remedy);
        assert!(messages.contains(&row), "{row}");
        for words in one.words {
            let is_written = files.iter().any(|(_, text)| text.contains(words));
            assert!(is_written, "no message of the operator contains {words:?}");
        }
    }
}

#[test]
fn the_states_of_goodput_are_those_of_the_accounting() {
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let report = goodput(&[], Since::All, GoodputBy::State, now);
    let shown: BTreeSet<_> = report
        .states
        .iter()
        .map(|one| one.state.to_owned())
        .collect();
    // A record omits states of zero seconds. The definition names all.
    let definition = json!(IPUAccounting::crd());
    let names = |of_total: &str| -> BTreeSet<String> {
        let path = format!(
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/total/properties/\
             {of_total}/properties"
        );
        let properties = definition.pointer(&path).and_then(Value::as_object);
        properties.unwrap().keys().cloned().collect()
    };
    let mut counted = names("namespaces/items");
    assert!(counted.remove("namespace"));
    counted.extend(names("unallocated"));
    assert_eq!(shown, counted);
}

#[test]
fn an_evaluation_reads_the_jobs_that_goodput_exports() {
    let job = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {
            "name": "train", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"jobInstances": 2, "ipusPerJobInstance": "4", "launcher": {"command": ["mpirun"]}},
        "status": {
            "launcherStatus": "Completed", "desiredReplicas": 2, "lastMessage": "",
            "completionTime": "2026-01-01T00:01:40Z",
            "accounting": {"until": "2026-01-01T00:01:40Z", "waiting": 40, "running": 60},
        },
    });
    let job: DynamicObject = serde_json::from_value(job).unwrap();
    let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    let mut collector = JobCollector::new(Since::All, now);
    collector.add(&job);
    let history = collector.history();
    let jobs = ipu_evaluation::jobs::parse(&history.csv).unwrap();
    let [job] = &jobs[..] else {
        panic!("one job is exported: {}", history.csv);
    };
    assert_eq!((&*job.namespace, job.arrival), ("team", 0));
    assert_eq!((job.ipus, job.gang, job.duration), (4, 2, 60));
}

#[test]
fn the_longest_reason_is_that_of_the_definition() {
    let definition = json!(VIPUController::crd());
    let path =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/reason/maxLength";
    let longest = definition.pointer(path).and_then(Value::as_u64).unwrap();
    let text = |length: u64| "a".repeat(usize::try_from(length).unwrap());
    assert!(reason(&text(longest)).is_ok());
    assert!(reason(&text(longest + 1)).is_err());
}

#[test]
fn the_document_of_the_plugin_shows_each_of_its_commands() {
    let path = repository().join("examples/docs/kubectl-ipu.md");
    let document = fs::read_to_string(path).unwrap();
    let answer = completion::answer(&[String::new()]);
    let commands = answer.lines().filter_map(|line| line.split_once('\t'));
    let commands: Vec<_> = commands.map(|(command, _)| command).collect();
    assert!(commands.len() > 7, "{answer}");
    for command in commands.iter().filter(|command| **command != "help") {
        let typed = format!("kubectl ipu {command}");
        assert!(document.contains(&typed), "{typed}");
    }
}
