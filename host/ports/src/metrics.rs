//! Counts the connections and requests that ports refused, by the exceeded limit.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Refusals of the ports of a process. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Refused {
    connections: Family<Labels, Counter>,
    requests: Family<Labels, Counter>,
}

type Labels = [(&'static str, &'static str); 2];

impl Refused {
    /// Counts a connection that a port closed because of this limit: `address`, `total` or `rate`,
    /// at once; or `preempted`.
    pub fn connection(&self, port: &'static str, limit: &'static str) {
        let labels = [("port", port), ("limit", limit)];
        self.connections.get_or_create(&labels).inc();
    }

    /// Counts a request that a port refused because of this limit: `address`, `total` or `rate`.
    pub fn request(&self, port: &'static str, limit: &'static str) {
        let labels = [("port", port), ("limit", limit)];
        self.requests.get_or_create(&labels).inc();
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "connections_refused",
            "Connections that were closed, by the limit that was reached",
            self.connections.clone(),
        );
        registry.register(
            "requests_refused",
            "Requests that were not carried out, by the limit that was reached",
            self.requests.clone(),
        );
    }
}
