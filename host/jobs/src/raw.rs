//! Pure: an IPUJob as the API server returned it, with a spec that may be invalid.

use ipu_api::ipujob::IPUJob;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::job_object::{JobObject, JobRef, job_uid};

/// Annotation of kubectl with the last applied manifest, which is the whole job once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An IPUJob whose spec and status can be any JSON, so that one invalid job does not stop the
/// watch.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = IPUJob)]
pub struct RawJob {
    /// The metadata, which every object has.
    pub metadata: ObjectMeta,
    /// The spec.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub spec: Value,
    /// The status.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub status: Value,
}

impl RawJob {
    /// Returns the job as JSON, with its kind.
    ///
    /// # Panics
    /// Never: metadata is plain data.
    pub fn as_json(&self) -> Value {
        let mut object = json!(self);
        object["apiVersion"] = IPUJob::api_version(&()).into();
        object["kind"] = IPUJob::kind(&()).into();
        object
    }
}

/// A job is stored whole, because a write of its status contains it, and as JSON: the values of a
/// spec take several times as much memory as their text.
impl JobObject for RawJob {
    type Stored = Box<[u8]>;
    type Shared = ();

    fn job(&self) -> Option<JobRef> {
        let namespace = self.metadata.namespace.as_deref()?;
        Some(JobRef {
            namespace: namespace.into(),
            name: self.metadata.name.as_deref()?.into(),
            uid: job_uid(namespace, self.metadata.uid.as_deref()?),
        })
    }

    fn store(mut self, (): &mut (), _: Option<&Box<[u8]>>) -> Option<Box<[u8]>> {
        self.metadata.managed_fields = None;
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.remove(LAST_APPLIED);
        }
        Some(serde_json::to_vec(&self).ok()?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_of_any_type_round_trips() {
        for spec in [json!(5), json!({"jobInstances": "many"}), json!([])] {
            let object = json!({
                "apiVersion": "graphcore.ai/v1alpha1",
                "kind": "IPUJob",
                "metadata": {"name": "job", "namespace": "n", "uid": "u"},
                "spec": spec,
            });
            let job: RawJob = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(job.as_json(), object);
        }
    }
}
