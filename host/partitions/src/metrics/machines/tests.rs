//! Pure: which addresses become labels, and when they are read.

use serde_json::{Value, json};

use super::*;

/// A ready partition with 4 IPUs.
fn ready(name: &str, more: &Value) -> Arc<IPUPartition> {
    let mut status = json!({
        "phase": "Ready", "partitionId": format!("p-{name}"),
        "controller": {
            "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "k", "labelValue": "v",
        },
    });
    let fields = more.as_object().unwrap().clone();
    status.as_object_mut().unwrap().extend(fields);
    let partition = serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": name},
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": "n", "name": "job", "uid": "u",
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": status,
    }));
    Arc::new(partition.unwrap())
}

fn device(ip: &str) -> Device {
    Device {
        ip: ip.to_owned(),
        server_port: 1,
        rdma_port: 2,
        device_id: 3,
        routing_id: 4,
        chip_id: String::new(),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn entry(read: i64, machines: &[(&str, u32)]) -> Entry {
    let machines = machines.iter();
    Entry {
        read: at(read),
        machines: machines
            .map(|(address, ipus)| (address.parse().unwrap(), *ipus))
            .collect(),
    }
}

fn names(due: &[Due]) -> Vec<&str> {
    due.iter().map(|due| &*due.key.id).collect()
}

fn text(machines: &Machines, ready: &[Arc<IPUPartition>]) -> String {
    let mut registry = Registry::default();
    machines.expose(ready, &mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode_registry(&mut text, &registry).unwrap();
    text
}

#[test]
fn ipus_are_counted_by_machine() {
    let devices = ["10.1.0.2", "10.1.0.1", "10.1.0.2"].map(device);
    let expected = entry(0, &[("10.1.0.1", 1), ("10.1.0.2", 2)]).machines;
    assert_eq!(by_machine(&devices, 4), expected);
}

#[test]
fn text_that_is_no_address_becomes_no_label() {
    let hostile = ["10.1.0.1", "a\"} 1\nforged 1", "10.1.0", "machine1", ""].map(device);
    let expected = entry(0, &[("10.1.0.1", 1)]).machines;
    assert_eq!(by_machine(&hostile, 5), expected);
}

#[test]
fn no_partition_is_on_more_machines_than_it_has_ipus() {
    let devices: Vec<_> = (0..200).map(|n| device(&format!("10.1.0.{n}"))).collect();
    assert_eq!(by_machine(&devices, 4).len(), 4);
}

#[test]
fn unread_partitions_are_read_first_and_known_ones_after_a_while() {
    let all = ["a", "b", "c", "d"].map(|name| ready(name, &json!({})));
    let mut known = HashMap::from([
        (key(&all[0]).unwrap(), entry(100, &[("10.1.0.1", 4)])),
        (key(&all[1]).unwrap(), entry(50, &[("10.1.0.1", 4)])),
        (key(&all[2]).unwrap(), entry(600, &[("10.1.0.1", 4)])),
    ]);
    let due_at = |known: &mut _, seconds| {
        let due = due(known, &all, at(seconds));
        names(&due)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(due_at(&mut known, 649), ["p-d"]);
    assert_eq!(due_at(&mut known, 700), ["p-d", "p-b", "p-a"]);
    assert_eq!(known.len(), 3);
}

#[test]
fn partitions_without_addresses_are_read_again_soon() {
    let partition = ready("a", &json!({}));
    let mut known = HashMap::from([(key(&partition).unwrap(), entry(0, &[]))]);
    let all = [partition];
    assert_eq!(due(&mut known, &all, at(59)).len(), 0);
    assert_eq!(due(&mut known, &all, at(60)).len(), 1);
}

#[test]
fn a_reset_partition_is_read_again_and_a_gone_one_is_forgotten() {
    let before = ready("a", &json!({}));
    let mut known = HashMap::from([
        (key(&before).unwrap(), entry(0, &[("10.1.0.1", 4)])),
        (
            key(&ready("gone", &json!({}))).unwrap(),
            entry(0, &[("10.1.0.2", 4)]),
        ),
    ]);
    let by_operator = ready("a", &json!({"observedResetGeneration": 1}));
    let by_controller = ready("b", &json!({"autoResets": {"count": 1, "max": 3}}));
    let due = due(&mut known, &[by_operator, by_controller], at(1));
    assert_eq!(names(&due), ["p-a", "p-b"]);
    assert!(known.is_empty(), "{known:?}");
}

#[test]
fn one_scrape_reads_a_bounded_number_of_partitions() {
    let all: Vec<_> = (0..READS_MAX + 9)
        .map(|number| ready(&number.to_string(), &json!({})))
        .collect();
    assert_eq!(due(&mut HashMap::new(), &all, at(0)).len(), READS_MAX);
}

#[test]
fn partitions_whose_machines_are_not_exported_are_counted() {
    let all = ["a", "b"].map(|name| ready(name, &json!({})));
    let machines = Machines::default();
    let read = entry(0, &[("10.1.0.1", 4)]);
    machines.0.lock().insert(key(&all[0]).unwrap(), read);
    let text = text(&machines, &all);
    let expected = "partition_machine_ipus{machine=\"10.1.0.1\",owner=\"job\",owner_kind=\"IPUJob\",\
        owner_namespace=\"n\",partition=\"a\",vipu_controller=\"pod1:8090\"} 4\n";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("partitions_machines_unknown 1\n"), "{text}");
}

#[test]
fn the_number_of_series_is_bounded() {
    let all: Vec<_> = (0..SERIES_MAX + 3)
        .map(|number| ready(&number.to_string(), &json!({})))
        .collect();
    let machines = Machines::default();
    let entries = all.iter().map(|partition| {
        let key = key(partition).unwrap();
        (key, entry(0, &[("10.1.0.1", 4)]))
    });
    machines.0.lock().extend(entries);
    let text = text(&machines, &all);
    let series = text.matches("partition_machine_ipus{").count();
    assert_eq!(series, SERIES_MAX);
    assert!(text.contains("partitions_machines_unknown 3\n"), "{text}");
}
