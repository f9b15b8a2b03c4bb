//! The limits of each port.

use std::time::Duration;

use super::preemptive_semaphore::Share;

/// Limits of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Its name, for the metrics.
    pub port: &'static str,
    /// Concurrent connections. Beyond the limit, connections end that wait for their client, of the
    /// address with the most first. If no address has more, the new connection is refused.
    pub connections: Share,
    /// Time limit of the head of the first request.
    pub first: Duration,
    /// Time limit of the head of each further request, and so of an idle connection.
    pub idle: Duration,
    /// Largest head of a request, in bytes.
    pub head: usize,
    /// Time limit of the responses in progress after `stop`.
    pub drain: Duration,
}

/// The kubelet's probes of both processes. A kubelet opens a connection for each probe.
pub const PROBES: Limits = Limits {
    port: "probes",
    connections: Share {
        total: 128,
        each: 16,
        queue: 0,
    },
    first: Duration::from_secs(2),
    idle: Duration::from_secs(2),
    head: 8 << 10,
    drain: Duration::from_secs(1),
};

/// REST in plain text.
pub const REST: Limits = Limits {
    port: "rest",
    connections: Share {
        total: 512,
        each: 128,
        queue: 0,
    },
    first: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    head: 16 << 10,
    drain: Duration::from_secs(5),
};

/// REST with TLS. A head may contain a long token.
pub const SECURE_REST: Limits = Limits {
    port: "rest-tls",
    head: 64 << 10,
    ..REST
};

/// The controller's metrics. A head may contain a long token.
pub const METRICS: Limits = Limits {
    port: "metrics",
    connections: Share {
        total: 192,
        each: 32,
        queue: 0,
    },
    ..SECURE_REST
};

/// The webhooks. An idle connection stays open longer than the 90 s after which an API server
/// closes it. So the API server never sends into a connection that is being closed.
pub const WEBHOOKS: Limits = Limits {
    port: "webhooks",
    connections: Share {
        total: 1_024,
        each: 256,
        queue: 0,
    },
    first: Duration::from_secs(5),
    idle: Duration::from_mins(2),
    head: 16 << 10,
    drain: Duration::from_secs(10),
};
