//! Pure: the IPUs that a Pod of any owner requests, by a container's limit or by annotations.

mod raw;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use thiserror::Error;

use self::raw::RawRequest;
use crate::dns1123::is_subdomain;
use crate::labels::{GCD_ANNOTATION, IPU_RESOURCE, PARTITION_ANNOTATION};
use crate::quantity::whole_number;

/// Longest value that a message repeats, in characters.
const SHOWN: usize = 40;

/// Request of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodRequest {
    /// A partition that the operator creates for this Pod alone.
    New(NewPartition),
    /// A partition that exists already.
    Existing(ExistingPartition),
}

/// A partition that the operator creates for one Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartition {
    /// Number of IPUs; at least 1.
    pub ipus: u32,
    /// Index of the container with the limit.
    pub container: Option<usize>,
    /// Whether the annotation requests them.
    pub is_annotated: bool,
}

/// An IPUPartition that a Pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingPartition {
    /// Name of the IPUPartition.
    pub name: String,
    /// The GCD of the Pod.
    pub gcd: u32,
}

/// A request that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {message}")]
pub struct PodRequestError {
    /// Path of the field.
    pub field: String,
    /// The value, the rule, and the remedy.
    pub message: String,
}

impl PodRequest {
    /// Reads the request of a Pod in JSON. `None`: the Pod requests no IPUs.
    pub fn of(pod: &Value) -> Result<Option<Self>, PodRequestError> {
        Self::read(&RawRequest::of_json(pod))
    }

    /// Reads the request of a Pod from the API server, with checked types. `None`: the Pod requests
    /// no IPUs.
    pub fn of_pod(pod: &Pod) -> Result<Option<Self>, PodRequestError> {
        Self::read(&RawRequest::of_pod(pod))
    }

    fn read(raw: &RawRequest<'_>) -> Result<Option<Self>, PodRequestError> {
        let limit = limit(raw)?;
        let annotated = annotated(raw)?;
        let existing = existing(raw)?;
        let size = match (limit, annotated) {
            (None, None) => None,
            (Some((index, ipus)), None) => Some((ipus, Some(index))),
            (None, Some(ipus)) => Some((ipus, None)),
            (Some((index, ipus)), Some(same)) if ipus == same => Some((ipus, Some(index))),
            (Some((index, ipus)), Some(other)) => {
                return Err(error(
                    annotation_path(IPU_RESOURCE),
                    format!(
                        "\"{other}\" differs from {} {ipus}; give the same number, or remove the annotation",
                        limit_path("containers", index)
                    ),
                ));
            }
        };
        match (size, existing) {
            (None, None) => Ok(None),
            (None, Some(existing)) => Ok(Some(Self::Existing(existing))),
            (Some((ipus, container)), None) => {
                one_gcd(raw)?;
                Ok(Some(Self::New(NewPartition {
                    ipus,
                    container,
                    is_annotated: annotated.is_some(),
                })))
            }
            (Some(_), Some(existing)) => Err(error(
                annotation_path(PARTITION_ANNOTATION),
                format!(
                    "\"{}\" excludes {IPU_RESOURCE}: a Pod either uses an existing partition or requests IPUs for \
                     itself; remove one of the two",
                    existing.name
                ),
            )),
        }
    }

    /// The GCD of the Pod in its partition.
    pub fn gcd(&self) -> u32 {
        match self {
            Self::New(_) => 0,
            Self::Existing(existing) => existing.gcd,
        }
    }

    /// Number of IPUs that the Pod adds to those in use: none if it shares a partition.
    pub fn new_ipus(&self) -> u32 {
        match self {
            Self::New(new) => new.ipus,
            Self::Existing(_) => 0,
        }
    }

    /// Path of the field with the request.
    pub fn field(&self) -> String {
        match self {
            Self::New(new) => new.field(),
            Self::Existing(_) => annotation_path(PARTITION_ANNOTATION),
        }
    }
}

impl NewPartition {
    /// Path of the field that requests the IPUs.
    pub fn field(&self) -> String {
        match self.container {
            Some(index) => limit_path("containers", index),
            None => annotation_path(IPU_RESOURCE),
        }
    }
}

/// The reason for which no Pod can have this number of IPUs, as the end of a sentence: the rules
/// for the size of a native Pod are those for a job.
pub fn refused_size(ipus: u32, max_ipus: u32) -> Option<String> {
    if ipus > max_ipus {
        return Some(format!(
            "which is more than the {max_ipus} IPUs that one Pod may have here; request fewer, or have the operator's limit \
             (controller.maxIpusPerJob) raised"
        ));
    }
    if ipus.is_power_of_two() {
        return None;
    }
    let above = ipus.checked_next_power_of_two();
    let below = above.map_or(1 << (u32::BITS - 1), |above| above >> 1);
    let remedy = match above.filter(|above| *above <= max_ipus) {
        Some(above) => format!("{below} or {above}"),
        None => below.to_string(),
    };
    Some(format!("which is not a power of two; request {remedy}"))
}

/// Path of an annotation, as Kubernetes writes it in messages.
pub fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

fn limit_path(list: &str, index: usize) -> String {
    format!("spec.{list}[{index}].resources.limits[{IPU_RESOURCE}]")
}

/// The container with a limit, by its index, and the limit. A limit of 0 requests nothing, as that
/// of every resource: charts write it for a Pod without IPUs.
fn limit(raw: &RawRequest<'_>) -> Result<Option<(usize, u32)>, PodRequestError> {
    let mut found = None;
    for (index, value) in &raw.limits {
        let index = *index;
        if is_zero(value) {
            continue;
        }
        if let Some((first, _)) = found {
            return Err(error(
                limit_path("containers", index),
                format!(
                    "only one container of a Pod may request IPUs, and spec.containers[{first}] requests some already; \
                     remove one limit: every container of the Pod gets the variables of its partition"
                ),
            ));
        }
        found = Some((index, number(value, || limit_path("containers", index))?));
    }
    if let Some((index, _)) = raw.init_limits.iter().find(|(_, value)| !is_zero(value)) {
        return Err(error(
            limit_path("initContainers", *index),
            "an init container cannot request IPUs; move the limit to one of spec.containers: init containers get the \
             variables of the Pod's partition too"
                .to_owned(),
        ));
    }
    Ok(found)
}

fn annotated(raw: &RawRequest<'_>) -> Result<Option<u32>, PodRequestError> {
    let value = raw.ipus.as_deref();
    let number = value.map(|value| number(value, || annotation_path(IPU_RESOURCE)));
    number.transpose()
}

fn existing(raw: &RawRequest<'_>) -> Result<Option<ExistingPartition>, PodRequestError> {
    let Some(value) = raw.partition.as_deref() else {
        return Ok(None);
    };
    let name = value.as_str().unwrap_or_default();
    if !is_subdomain(name) {
        return Err(error(
            annotation_path(PARTITION_ANNOTATION),
            format!(
                "{} is not the name of an IPUPartition; kubectl get ipupartitions lists the names",
                shown(value)
            ),
        ));
    }
    Ok(Some(ExistingPartition {
        name: name.to_owned(),
        gcd: gcd(raw)?.unwrap_or(0),
    }))
}

fn gcd(raw: &RawRequest<'_>) -> Result<Option<u32>, PodRequestError> {
    let Some(value) = raw.gcd.as_deref() else {
        return Ok(None);
    };
    digits(value).map(Some).ok_or_else(|| {
        error(
            annotation_path(GCD_ANNOTATION),
            format!(
                "{} is not the index of a GCD; give a whole number from 0",
                shown(value)
            ),
        )
    })
}

/// The partition of one Pod has one GCD.
fn one_gcd(raw: &RawRequest<'_>) -> Result<(), PodRequestError> {
    match gcd(raw)? {
        None | Some(0) => Ok(()),
        Some(gcd) => Err(error(
            annotation_path(GCD_ANNOTATION),
            format!(
                "\"{gcd}\" does not exist: the partition of a single Pod has only GCD 0; remove the annotation, or name \
                 a partition with several GCDs in the annotation {PARTITION_ANNOTATION}"
            ),
        )),
    }
}

fn number(value: &Value, field: impl FnOnce() -> String) -> Result<u32, PodRequestError> {
    let number = whole(value).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| {
        error(
            field(),
            format!(
                "{} is not a number of IPUs; give a whole number from 1, such as \"4\"",
                shown(value)
            ),
        )
    })
}

fn is_zero(value: &Value) -> bool {
    whole(value) == Some(0)
}

/// A whole number in any notation of a quantity. Clients and the API server write the same number
/// in different ones.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => whole_number(text),
        Value::Number(number) => whole_number(&number.to_string()),
        _ => None,
    }
}

/// A whole number in digits.
fn digits(value: &Value) -> Option<u32> {
    match value {
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        Value::Number(number) => number.as_u64()?.try_into().ok(),
        _ => None,
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn error(field: String, message: String) -> PodRequestError {
    PodRequestError { field, message }
}

#[cfg(test)]
mod tests;
