//! Pure: the maximum memory of each process and its children, item by item. If the sum exceeds the
//! limit of the container, the kernel kills the container instead of the process refusing a
//! request.

use vipu_client::replies;

use crate::controller::existing;
use ipu_admission::intake::{BODIES, MEMORY};
use ipu_admission::request;
use ipu_guest_host::limits;
use ipu_partitions::accounting::WATCH_MEMORY;
use ipu_partitions::pod_users;
use ipu_policies::active_policies::CONCURRENT_COMPARISONS;
use ipu_policies::follower::PREFETCHED;
use ipu_policies::{CONCURRENT_EVALUATIONS, matcher};
use ipu_ports::limits::{Limits, METRICS, PROBES, REST, SECURE_REST, WEBHOOKS};
use ipu_rest::limits::{CONCURRENCY, CREATE_MAX, QUERY_MAX};

/// An idle process with ten thousand objects and the code of its guests: twice the figure in
/// BENCHMARKS.md.
const IDLE: usize = 160 << 20;

/// Native Pods in the cache of the controller, each with its IPUPartition.
const NATIVE_PODS: usize = 10_000;

/// A native Pod with its IPUPartition: names, labels and annotations of usual lengths, and its
/// conditions. Twice the size of these fields.
const NATIVE_POD: usize = 6 << 10;

/// A connection: its task, the buffers of TLS for both directions, and an answer. The head of a
/// request comes on top.
const CONNECTION: usize = 48 << 10;

/// Maximum memory of an unread connection in the kernel: the initial receive buffer of Linux.
const SOCKET: usize = 128 << 10;

/// An evaluated condition: a copy of its input, and its values. Each step of a policy's cost limit
/// makes some ten bytes of text, or a value.
const JUDGED: u64 = 25 * matcher::POLICY_LIMIT;

/// A comparison, which continues after its request has ended: the request, and the answers of three
/// guests (the previous one, the active one, and the shadow).
const COMPARED: usize = request::TREE.memory + 3 * limits::ANSWER_TREE;

/// A REST request: its parsed body, and a whole page as its answer.
const REST_REQUEST: usize = 2 << 20;

/// An item, and its maximum size in bytes.
pub type Item = (&'static str, usize);

/// The items of the controller.
pub fn controller() -> Vec<Item> {
    vec![
        ("idle", IDLE),
        ("native Pods", NATIVE_PODS * NATIVE_POD),
        // A growing buffer is copied, and the old half lives a moment longer.
        ("AdmissionReviews as they are sent", BODIES.total / 2 * 3),
        ("AdmissionReviews once they are read", MEMORY),
        ("connections", connections(&[WEBHOOKS, METRICS, PROBES])),
        ("sockets", sockets(&[WEBHOOKS, METRICS, PROBES])),
        ("guests", guests()),
        ("loaded modules", loaded_modules()),
        ("modules that wait to be loaded", waiting_modules()),
        ("conditions", conditions()),
        ("comparisons", CONCURRENT_COMPARISONS * COMPARED),
        ("review of existing objects", existing::MEMORY),
    ]
}

/// The items of the vipu-proxy.
pub fn vipu_proxy() -> Vec<Item> {
    // Both ports, and the metrics on one of them.
    let requests = 3 * CONCURRENCY.total;
    // Each connection may have a request that is being read. A growing buffer has up to twice the
    // capacity of its content.
    let bodies =
        2 * (REST.connections.total * QUERY_MAX + SECURE_REST.connections.total * CREATE_MAX);
    vec![
        ("idle", IDLE),
        ("bodies of REST requests", bodies),
        ("REST requests in progress", requests * REST_REQUEST),
        // Other replies have kilobytes, which are part of the idle process.
        ("false replies of 256 V-IPU controllers", replies::MOST),
        // Their authors decide on their size.
        ("lists of Pods", pod_users::MEMORY + WATCH_MEMORY),
        ("connections", connections(&[REST, SECURE_REST, PROBES])),
        ("sockets", sockets(&[REST, SECURE_REST, PROBES])),
        ("guests", guests()),
        ("loaded modules", loaded_modules()),
        ("modules that wait to be loaded", waiting_modules()),
        ("conditions", conditions()),
    ]
}

/// All items together, in bytes.
pub fn sum(items: &[Item]) -> usize {
    items.iter().map(|(_, bytes)| bytes).sum()
}

fn connections(ports: &[Limits]) -> usize {
    let of_port = |port: &Limits| port.connections.total * (port.head + CONNECTION);
    ports.iter().map(of_port).sum()
}

fn sockets(ports: &[Limits]) -> usize {
    let all = ports.iter().map(|port| port.connections.total);
    all.sum::<usize>() * SOCKET
}

/// Modules from registries that wait to be loaded.
fn waiting_modules() -> usize {
    PREFETCHED * usize::try_from(limits::MODULE).unwrap_or(usize::MAX)
}

fn conditions() -> usize {
    CONCURRENT_EVALUATIONS * usize::try_from(JUDGED).unwrap_or(usize::MAX)
}

/// Modules of policies: active ones, candidates and shadows.
fn loaded_modules() -> usize {
    usize::try_from(limits::LOADED).unwrap_or(usize::MAX)
}

/// All concurrent calls of guests, and the one module that is loaded meanwhile, with the process
/// that compiles it.
fn guests() -> usize {
    usize::try_from(limits::ALL).unwrap_or(usize::MAX)
}
