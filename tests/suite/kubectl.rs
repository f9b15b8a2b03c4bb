//! Holds the plugin of kubectl to the operator, on whose packages it does not depend: the order of the queue, and what to
//! do about reasons.

use std::fs;

use ipu_api::ipupartition::IPUPartition;
use ipu_kubectl::advice::{OPERATOR, WAITING};
use ipu_kubectl::queue as plugin;
use ipu_partitions::queue;
use jiff::Timestamp;
use serde_json::json;

use crate::sources::{repository, rust_files};

/// The page of messages without the marks of Markdown, which the plugin does not print.
fn messages() -> String {
    let path = repository().join("charts/ipu-operator/docs/messages.md");
    fs::read_to_string(path).unwrap().replace('`', "")
}

/// An IPUPartition whose place and gang follow from its number.
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
    let served: Vec<_> = served.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(served.len(), 40);
    assert_eq!(plugin::order(&all, now), served);
}

#[test]
fn what_to_do_about_a_reason_is_what_the_page_of_messages_says() {
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
fn causes_of_waiting_are_those_of_the_page_of_messages_and_of_the_code() {
    let messages = messages();
    let mut files = rust_files("host/partitions/src");
    files.extend(rust_files("guests/serial-walk/src"));
    for one in WAITING {
        let row = format!("{} ({}", one.cause, one.remedy);
        assert!(messages.contains(&row), "{row}");
        for words in one.words {
            let is_written = files.iter().any(|(_, text)| text.contains(words));
            assert!(is_written, "no message of the operator contains {words:?}");
        }
    }
}
