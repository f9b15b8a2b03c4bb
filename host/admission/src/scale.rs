//! Makes a change of the number of instances (`kubectl scale`, an autoscaler) the update of the
//! IPUJob that it is: rules are about IPUJobs.

use std::fmt;

use http::Request;
use ipu_api as api;
use ipu_api::dns1123::{is_label, is_subdomain};
use ipu_runtime::api_client::API_TIMEOUT;
use ipu_runtime::bounded_json::{BoundedJsonError, Measured};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::request::{AdmissionRequest, Reviewed, measure_object};

/// Failure to read an IPUJob.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// The process has no client for it.
    #[error("this process cannot read IPUJobs")]
    NoClient,
    /// The API server did not answer in time.
    #[error("the API server did not send the IPUJob within {} s; try again", API_TIMEOUT.as_secs())]
    Late,
    /// The API server sent an error.
    #[error("failed to read the IPUJob whose instances are changed")]
    Read(#[source] kube::Error),
    /// The IPUJob is no JSON, or takes more memory than a request may.
    #[error("the IPUJob cannot be reviewed: its text {0}")]
    Unreadable(#[source] BoundedJsonError),
}

/// Reads IPUJobs as they are stored. The default reads none.
#[derive(Clone, Default)]
pub struct StoredJobs(Option<Client>);

impl fmt::Debug for StoredJobs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the stored IPUJobs")
    }
}

impl StoredJobs {
    /// Reads them with this client.
    pub fn new(client: Client) -> Self {
        Self(Some(client))
    }

    /// Reads the IPUJob of a request, and measures the memory that it takes. `None`: there is none.
    pub(super) async fn measured(
        &self,
        request: &AdmissionRequest,
    ) -> Result<Option<Measured<Vec<u8>>>, ScaleError> {
        let (namespace, name) = (&request.namespace, &request.name);
        if !is_label(namespace) || !is_subdomain(name) {
            return Ok(None);
        }
        let client = self.0.as_ref().ok_or(ScaleError::NoClient)?;
        let path = format!(
            "/apis/{}/namespaces/{namespace}/ipujobs/{name}",
            api::API_VERSION
        );
        let get = Request::get(path).body(Vec::new());
        let get = get.map_err(|error| ScaleError::Read(kube::Error::HttpError(error)))?;
        let read = timeout(API_TIMEOUT, client.request_text(get)).await;
        match read.map_err(|_| ScaleError::Late)? {
            Ok(text) => {
                let measured = measure_object(text.into_bytes());
                measured.map(Some).map_err(ScaleError::Unreadable)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(source) => Err(ScaleError::Read(source)),
        }
    }
}

/// Returns the request as the update of this IPUJob.
pub(super) fn as_update(request: &AdmissionRequest, job: Value) -> AdmissionRequest {
    let old = request.old_object.as_ref().map(replicas);
    let with = |mut job: Value, instances: i64| {
        job["spec"]["jobInstances"] = json!(instances);
        job
    };
    let old = old.map(|instances| with(job.clone(), instances));
    let new = with(job, replicas(&request.object));
    AdmissionRequest {
        reviewed: Reviewed::IPUJob,
        ..request.about(new, old)
    }
}

/// The number of instances in a Scale, which leaves a zero out.
fn replicas(scale: &Value) -> i64 {
    scale["spec"]["replicas"].as_i64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::{request, updating};

    fn scaling(spec: &Value, old: &Value) -> AdmissionRequest {
        let mut request = request(|review| {
            review["subResource"] = json!("scale");
            review["object"] = json!({"spec": spec});
            updating(|object| object["spec"] = old.clone())(review);
        });
        request.reviewed = Reviewed::Scale;
        request
    }

    #[test]
    fn a_change_of_the_scale_is_an_update_of_the_job() {
        let job = json!({"spec": {"jobInstances": 9, "ipusPerJobInstance": "8"}});
        let update = as_update(&scaling(&json!({"replicas": 2}), &json!({})), job);
        assert_eq!(update.reviewed, Reviewed::IPUJob);
        assert_eq!(update.sub_resource.as_deref(), Some("scale"));
        assert_eq!(
            update.object["spec"],
            json!({"jobInstances": 2, "ipusPerJobInstance": "8"})
        );
        let old = update.old_object.unwrap();
        assert_eq!(old["spec"]["jobInstances"], json!(0));
    }

    #[tokio::test]
    async fn without_a_client_the_job_cannot_be_read_and_an_impossible_name_is_none() {
        let scale = scaling(&json!({}), &json!({}));
        let jobs = StoredJobs::default();
        assert!(matches!(
            jobs.measured(&scale).await,
            Err(ScaleError::NoClient)
        ));
        let mut impossible = scale;
        impossible.name = "../secrets".to_owned();
        assert!(jobs.measured(&impossible).await.unwrap().is_none());
    }
}
