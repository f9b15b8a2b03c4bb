//! Pure: the unchecked fields of a Pod about IPUs, from the JSON of a review or from a watched Pod.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::Value;

use crate::labels::{GCD_ANNOTATION, IPU_RESOURCE, PARTITION_ANNOTATION};

/// The values that make up a request.
#[derive(Debug)]
pub(super) struct RawRequest<'a> {
    /// The limits of containers, each with the index of its container.
    pub(super) limits: Vec<(usize, Cow<'a, Value>)>,
    /// The limits of init containers, each with the index of its container.
    pub(super) init_limits: Vec<(usize, Cow<'a, Value>)>,
    /// The annotation with the number of IPUs.
    pub(super) ipus: Option<Cow<'a, Value>>,
    /// The annotation with the name of an IPUPartition.
    pub(super) partition: Option<Cow<'a, Value>>,
    /// The annotation with the GCD.
    pub(super) gcd: Option<Cow<'a, Value>>,
}

impl<'a> RawRequest<'a> {
    /// Reads a Pod with unchecked types.
    pub(super) fn of_json(pod: &'a Value) -> Self {
        let annotations = pod.pointer("/metadata/annotations");
        let annotation = |key: &str| annotations?.get(key).map(Cow::Borrowed);
        Self {
            limits: in_json(pod, "/spec/containers").collect(),
            init_limits: in_json(pod, "/spec/initContainers").collect(),
            ipus: annotation(IPU_RESOURCE),
            partition: annotation(PARTITION_ANNOTATION),
            gcd: annotation(GCD_ANNOTATION),
        }
    }
}

impl RawRequest<'static> {
    /// Reads a Pod of the API server.
    pub(super) fn of_pod(pod: &Pod) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let annotation = |key: &str| annotations?.get(key).map(|value| text(value));
        let spec = pod.spec.as_ref();
        let containers = spec.map(|spec| spec.containers.as_slice());
        let init_containers = spec.and_then(|spec| spec.init_containers.as_deref());
        Self {
            limits: in_fields(containers.unwrap_or_default()).collect(),
            init_limits: in_fields(init_containers.unwrap_or_default()).collect(),
            ipus: annotation(IPU_RESOURCE),
            partition: annotation(PARTITION_ANNOTATION),
            gcd: annotation(GCD_ANNOTATION),
        }
    }
}

fn in_json<'a>(
    pod: &'a Value,
    list: &str,
) -> impl Iterator<Item = (usize, Cow<'a, Value>)> + use<'a> {
    let containers = pod.pointer(list).and_then(Value::as_array);
    let containers = containers.into_iter().flatten().enumerate();
    containers.filter_map(|(index, container)| {
        let limits = container.pointer("/resources/limits")?;
        Some((index, Cow::Borrowed(limits.get(IPU_RESOURCE)?)))
    })
}

fn in_fields(containers: &[Container]) -> impl Iterator<Item = (usize, Cow<'static, Value>)> {
    let containers = containers.iter().enumerate();
    containers.filter_map(|(index, container)| {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        Some((index, text(&limits.get(IPU_RESOURCE)?.0)))
    })
}

fn text(value: &str) -> Cow<'static, Value> {
    Cow::Owned(Value::String(value.to_owned()))
}
