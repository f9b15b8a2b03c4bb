//! Pure: the most memory that each process takes with everything that it starts, item by item. The sum must fit the
//! limit of its container, or the kernel ends the container instead of refusing whoever asked for too much.

use vipu_client::replies;

use ipu_admission::intake::{BODIES, MEMORY};
use ipu_admission::request;
use ipu_guest_host::limits;
use ipu_partitions::rest::limits::{CONCURRENCY, CREATE_MAX, QUERY_MAX};
use ipu_policies::active_policies::CONCURRENT_COMPARISONS;
use ipu_policies::follower::PREFETCHED;
use ipu_policies::{CONCURRENT_EVALUATIONS, matcher};
use ipu_runtime::port::serve::{Limits, METRICS, PROBES, REST, SECURE_REST, WEBHOOKS};

/// A process at rest with ten thousand objects, with the code of its guests: twice what BENCHMARKS.md tells.
const AT_REST: usize = 160 << 20;

/// Native Pods that the controller knows, each with its IPUPartition.
const NATIVE_PODS: usize = 10_000;

/// A native Pod with its IPUPartition: names, labels and annotations of usual lengths, and its conditions. Twice what
/// these fields take.
const NATIVE_POD: usize = 6 << 10;

/// A connection: its task, what TLS holds of both directions, and an answer; beside the head of a request.
const CONNECTION: usize = 48 << 10;

/// What the kernel keeps of a connection at most where nobody reads it: the receive buffer that Linux begins with.
const SOCKET: usize = 128 << 10;

/// A condition that is evaluated: a copy of what it reads and what it makes of it, for each step of a policy's cost
/// limit some ten bytes of text, or a value for some of them.
const JUDGED: u64 = 25 * matcher::POLICY_LIMIT;

/// A comparison, which goes on after the request has gone: the request, and the answers of three guests (the one before
/// it, the one that counts, and the one that is tried).
const COMPARED: usize = request::TREE.memory + 3 * limits::ANSWER_TREE;

/// A request of the REST: what its body becomes once it is read, and a whole page as its answer.
const REST_REQUEST: usize = 2 << 20;

/// What takes memory, and how many bytes at most.
pub type Item = (&'static str, usize);

/// The items of the controller.
pub fn controller() -> Vec<Item> {
    vec![
        ("at rest", AT_REST),
        ("native Pods", NATIVE_PODS * NATIVE_POD),
        // A buffer that grows is copied: the old half is there a moment longer.
        ("AdmissionReviews as they are sent", BODIES.total / 2 * 3),
        ("AdmissionReviews once they are read", MEMORY),
        ("connections", connections(&[WEBHOOKS, METRICS, PROBES])),
        ("sockets", sockets(&[WEBHOOKS, METRICS, PROBES])),
        ("guests", guests()),
        ("loaded modules", loaded_modules()),
        ("modules that wait to be loaded", waiting_modules()),
        ("conditions", conditions()),
        ("comparisons", CONCURRENT_COMPARISONS * COMPARED),
    ]
}

/// The items of the vipu-proxy.
pub fn vipu_proxy() -> Vec<Item> {
    // Both ports, and the metrics on one of them.
    let requests = 3 * CONCURRENCY.total;
    // Each connection may have one that is being read. A buffer that grows has up to twice the bytes that are in it.
    let bodies =
        2 * (REST.connections.total * QUERY_MAX + SECURE_REST.connections.total * CREATE_MAX);
    vec![
        ("at rest", AT_REST),
        ("bodies of the REST", bodies),
        ("requests of the REST", requests * REST_REQUEST),
        // Others answer with kilobytes, which are in what the process takes at rest.
        ("replies of 256 V-IPU controllers that lie", replies::MOST),
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

/// Those from registries, before their turn.
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

/// All calls of guests at the same time, and the one module that is loaded meanwhile, with the process that compiles it.
fn guests() -> usize {
    usize::try_from(limits::ALL).unwrap_or(usize::MAX)
}
