//! Pure: the labels of the workers' template that the launcher has too.
//!
//! Services, disruption budgets and affinities select workers by labels, and would select the
//! launcher with them. Other labels are for admission webhooks and schedulers: whether a service
//! mesh injects its proxy, which identity a Pod has, or in which queue of a scheduler it is. They
//! hold for the whole template.

use ipu_api::GROUP;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::validate::ValidJob;

/// Domains whose labels describe an application, or are those of Kubernetes and of this operator.
const SELECTING: [&str; 5] = [GROUP, "helm.sh", "k8s.io", "kubernetes.io", "x-k8s.io"];

/// Adds the labels of the template that are for webhooks and schedulers. The operator's own labels
/// stay.
pub fn add(job: &ValidJob, metadata: &mut ObjectMeta) {
    let own = metadata.labels.get_or_insert_default();
    for (key, value) in job.template.metadata.labels.iter().flatten() {
        if is_for_others(key) {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Whether a label has a domain that is none of the selecting ones.
fn is_for_others(key: &str) -> bool {
    let selects = |domain: &str| is_of_domain(key, domain);
    key.contains('/') && !SELECTING.into_iter().any(selects)
}

/// Whether the domain of a label is this one, or is below it.
pub fn is_of_domain(key: &str, parent: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let rest = domain.strip_suffix(parent);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
