//! The table of faults: a node that passes, one change each, and what the checks say.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::ControllerRef;
use ipu_api::node_check::Outcome;

use super::{CHECKS, results};
use crate::facts::{Amount, Connection, Facts, FileFacts, NodeFacts, RdmaDevice};
use crate::requirements::Requirements;
use crate::verdict::{Status, Verdict};

/// A change of what was read.
type Change = fn(&mut Facts);

fn controller(label_value: &str) -> ControllerRef {
    ControllerRef {
        name: format!("{label_value}.example.com:8090"),
        host: format!("{label_value}.example.com"),
        port: 8090,
        label_key: "ipunode".to_owned(),
        label_value: label_value.to_owned(),
    }
}

fn device(name: &str, state: &str) -> RdmaDevice {
    RdmaDevice {
        name: name.to_owned(),
        numa_node: Some(0),
        interfaces: vec!["ens1f0".to_owned()],
        ports: vec![("1".to_owned(), state.to_owned())],
    }
}

fn map<T>(entries: [(&str, T); 1]) -> BTreeMap<String, T> {
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}

/// A node that passes all checks.
fn facts() -> Facts {
    Facts {
        node: Ok(NodeFacts {
            labels: map([("ipunode", "pod1".to_owned())]),
            allocatable: map([("rdma/rdma_shared_device_a", "63".to_owned())]),
        }),
        controllers: Ok(vec![controller("pod1"), controller("pod2")]),
        connections: map([("pod1.example.com:8090", Connection::Established)]),
        networks: map([("default/rdma-net", Ok(true))]),
        files: FileFacts {
            rdma: Ok(vec![device("mlx5_0", "ACTIVE"), device("mlx5_1", "DOWN")]),
            memlock: Ok(Amount::Unlimited),
            huge_pages: Ok(512),
            shared_memory: Ok(64 << 20),
            modules: Ok(BTreeSet::from(["mlx5_ib".to_owned()])),
            cni: Ok(vec!["00-multus.conf".to_owned()]),
        },
    }
}

/// Requirements of every kind.
fn requirements() -> Requirements {
    Requirements {
        rdma: true,
        rdma_devices: Vec::new(),
        rdma_resource: "rdma/rdma_shared_device_a".to_owned(),
        networks: vec!["default/rdma-net".parse().unwrap()],
        memlock: Some(Amount::Unlimited),
        shared_memory: Some(64 << 20),
        huge_pages: 512,
        kernel_modules: vec!["mlx5-ib".to_owned()],
    }
}

/// The verdict after a change.
fn verdict(change: Change) -> Verdict {
    let mut facts = facts();
    change(&mut facts);
    Verdict::of(&results(&facts, &requirements()))
}

#[test]
fn a_node_without_faults_passes_every_check() {
    let results = results(&facts(), &requirements());
    assert!(
        results.iter().all(|result| result.outcome == Outcome::Ok),
        "{results:#?}"
    );
    assert_eq!(results.len(), CHECKS.len());
    assert_eq!(verdict(|_| {}).status, Status::True);
}

/// Faults: the reason, words of the message, and the change.
const FAULTS: [(&str, &str, Change); 18] = [
    (
        "ControllerUnreachable",
        "ip route get pod1.example.com",
        |facts| {
            facts.connections = map([("pod1.example.com:8090", Connection::NoRoute)]);
        },
    ),
    ("ControllerUnreachable", "is the port right?", |facts| {
        facts.connections = map([("pod1.example.com:8090", Connection::Refused)]);
    }),
    (
        "ControllerUnreachable",
        "does not answer within 5 s",
        |facts| {
            facts.connections = map([("pod1.example.com:8090", Connection::NoAnswer(5))]);
        },
    ),
    ("ControllerUnreachable", "has no address", |facts| {
        facts.connections = map([("pod1.example.com:8090", Connection::NoAddress)]);
    }),
    ("RDMADeviceMissing", "load the driver", |facts| {
        facts.files.rdma = Ok(Vec::new());
    }),
    (
        "RDMALinkDown",
        "mlx5_0 port 1 is DOWN: check the cable",
        |facts| {
            facts.files.rdma = Ok(vec![device("mlx5_0", "DOWN")]);
        },
    ),
    (
        "MemlockTooLow",
        "is 64Ki, less than unlimited of ipuNode.memlock",
        |facts| {
            facts.files.memlock = Ok(Amount::Bytes(64 << 10));
        },
    ),
    (
        "MultusMissing",
        "does the DaemonSet of Multus run",
        |facts| {
            facts.files.cni = Ok(vec!["10-calico.conflist".to_owned(), "multus.d".to_owned()]);
        },
    ),
    (
        "NetworkMissing",
        "there is no NetworkAttachmentDefinition default/rdma-net",
        |facts| {
            facts.networks = map([("default/rdma-net", Ok(false))]);
        },
    ),
    (
        "RDMAResourceMissing",
        "does not advertise rdma/rdma_shared_device_a",
        |facts| {
            change_node(facts, |node| node.allocatable.clear());
        },
    ),
    ("RDMAResourceMissing", "advertises 0 of", |facts| {
        change_node(facts, |node| {
            node.allocatable = map([("rdma/rdma_shared_device_a", "0".to_owned())]);
        });
    }),
    ("NoControllerLabel", "the node has ipunode=pod3", |facts| {
        change_node(facts, |node| {
            node.labels = map([("ipunode", "pod3".to_owned())]);
        });
    }),
    (
        "NoControllerLabel",
        "ipunode=pod1, ipunode=pod2, and the node has none",
        |facts| {
            change_node(facts, |node| node.labels.clear());
        },
    ),
    ("SharedMemoryTooSmall", "is 32Mi, less than 64Mi", |facts| {
        facts.files.shared_memory = Ok(32 << 20);
    }),
    ("HugePagesMissing", "is 0, less than 512", |facts| {
        facts.files.huge_pages = Ok(0);
    }),
    ("KernelModuleMissing", "modprobe", |facts| {
        facts.files.modules = Ok(BTreeSet::new());
    }),
    ("ControllerUnreachable", "fails: broken", |facts| {
        let broken = Connection::Error("broken".to_owned());
        facts.connections = map([("pod1.example.com:8090", broken)]);
    }),
    ("RDMALinkDown", "mlx5_0 has no port", |facts| {
        let mut device = device("mlx5_0", "ACTIVE");
        device.ports.clear();
        facts.files.rdma = Ok(vec![device]);
    }),
];

#[test]
fn each_fault_has_its_reason_and_says_what_to_do() {
    for (reason, words, change) in FAULTS {
        let verdict = verdict(change);
        assert_eq!(
            (verdict.status, verdict.reason),
            (Status::False, reason),
            "{words}"
        );
        assert!(
            verdict.message.contains(words),
            "{words}: {}",
            verdict.message
        );
    }
}

fn change_node(facts: &mut Facts, change: impl FnOnce(&mut NodeFacts)) {
    change(facts.node.as_mut().unwrap());
}

#[test]
fn what_cannot_be_read_is_unknown_and_no_fault() {
    let unreadable: [(&str, Change); 8] = [
        ("controller-label", |facts| {
            facts.node = Err("gone".to_owned());
        }),
        ("controller-label", |facts| {
            facts.controllers = Err("gone".to_owned());
        }),
        ("controller-label", |facts| {
            facts.controllers = Ok(Vec::new());
        }),
        ("rdma-device", |facts| {
            facts.files.rdma = Err("gone".to_owned());
        }),
        ("kernel-modules", |facts| {
            facts.files.modules = Err("gone".to_owned());
        }),
        ("memlock", |facts| {
            facts.files.memlock = Err("gone".to_owned());
        }),
        ("multus", |facts| facts.files.cni = Err("gone".to_owned())),
        ("network", |facts| {
            facts.networks = map([("default/rdma-net", Err("forbidden".to_owned()))]);
        }),
    ];
    for (check, change) in unreadable {
        let verdict = verdict(change);
        assert_eq!(verdict.status, Status::Unknown, "{check}");
        assert!(
            verdict.message.contains(check),
            "{check}: {}",
            verdict.message
        );
    }
}

#[test]
fn required_devices_need_an_active_port_each() {
    let with = |devices: &[&str]| {
        let requirements = Requirements {
            rdma_devices: devices.iter().map(|name| (*name).to_owned()).collect(),
            ..requirements()
        };
        Verdict::of(&results(&facts(), &requirements)).reason
    };
    assert_eq!(with(&["mlx5_0"]), "ChecksPassed");
    assert_eq!(with(&["mlx5_0", "mlx5_1"]), "RDMALinkDown");
    assert_eq!(with(&["mlx5_7"]), "RDMADeviceMissing");
}

#[test]
fn without_requirements_only_the_controllers_are_checked() {
    let mut facts = facts();
    facts.files.rdma = Ok(Vec::new());
    facts.files.cni = Err("gone".to_owned());
    facts.files.memlock = Err("gone".to_owned());
    let results = results(&facts, &Requirements::default());
    let ok = results
        .iter()
        .filter(|result| result.outcome == Outcome::Ok);
    let ok: Vec<_> = ok.map(|result| result.check.as_str()).collect();
    assert_eq!(ok, ["controller-label", "controller-connection"]);
    assert_eq!(Verdict::of(&results).status, Status::True);
}
