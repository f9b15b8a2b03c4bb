//! What a process and its spans are about, in the names of OpenTelemetry's semantic conventions.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};

/// Variables that the chart fills in by the downward API, and the attributes that they become. The
/// operator of OpenTelemetry uses the same names.
const OF_POD: [(&str, &str); 6] = [
    ("OTEL_RESOURCE_ATTRIBUTES_POD_NAME", "k8s.pod.name"),
    ("OTEL_RESOURCE_ATTRIBUTES_POD_UID", "k8s.pod.uid"),
    (
        "OTEL_RESOURCE_ATTRIBUTES_NAMESPACE_NAME",
        "k8s.namespace.name",
    ),
    ("OTEL_RESOURCE_ATTRIBUTES_NODE_NAME", "k8s.node.name"),
    (
        "OTEL_RESOURCE_ATTRIBUTES_DEPLOYMENT_NAME",
        "k8s.deployment.name",
    ),
    (
        "OTEL_RESOURCE_ATTRIBUTES_CONTAINER_NAME",
        "k8s.container.name",
    ),
];

/// The object that a span works for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracedObject<'a> {
    /// Such as `IPUJob`.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name; empty if the API server has not generated it yet.
    pub name: &'a str,
    /// Its UID, which determines the trace; empty if the API server has not set it yet.
    pub uid: &'a str,
}

impl TracedObject<'_> {
    /// The attributes of a span that works for the object. There is no convention for IPUJobs.
    pub(super) fn attributes(&self) -> Vec<KeyValue> {
        let (name, uid) = match self.kind {
            "Pod" => ("k8s.pod.name", "k8s.pod.uid"),
            "IPUJob" => ("graphcore.ipujob.name", "graphcore.ipujob.uid"),
            _ => ("graphcore.owner.name", "graphcore.owner.uid"),
        };
        let values = [
            ("k8s.namespace.name", self.namespace),
            (name, self.name),
            (uid, self.uid),
        ];
        let known = values.into_iter().filter(|(_, value)| !value.is_empty());
        known
            .map(|(key, value)| KeyValue::new(key, value.to_owned()))
            .collect()
    }
}

/// The description of this process. Attributes of the standard variables replace the others.
pub(super) fn resource(
    process: &'static str,
    variable: impl Fn(&str) -> Option<String>,
) -> Resource {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let of_pod = OF_POD.into_iter().filter_map(|(name, key)| {
        let value = variable(name)?;
        Some(KeyValue::new(key, value))
    });
    let resource = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_service_name(format!("ipu-operator-{process}"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(of_pod)
        .with_detector(Box::new(EnvResourceDetector::new()));
    match variable("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}
