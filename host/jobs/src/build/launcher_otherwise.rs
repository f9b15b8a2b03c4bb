//! Pure: another form of a launcher, for a cluster that refuses the usual one.
//!
//! The operator derives the launcher from the workers' template. Policies that demand a label of
//! every Pod, and limit ranges that demand more than the default requests, would refuse it although
//! they accept the workers.

use ipu_api::GROUP;
use ipu_api::labels::AGENT_VOLUME;
use k8s_openapi::api::core::v1::Pod;

use super::launcher_labels::is_of_domain;
use super::launcher_names::CONTAINER;
use crate::validate::ValidJob;

/// Returns the launcher with all labels of the template, and without the default resources. `None`:
/// it has this form.
pub fn otherwise(job: &ValidJob, usual: &Pod) -> Option<Pod> {
    let mut launcher = usual.clone();
    let own = launcher.metadata.labels.get_or_insert_default();
    for (key, value) in job.template.metadata.labels.iter().flatten() {
        if !is_of_domain(key, GROUP) {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    let has_default = (job.launcher.as_ref()).is_some_and(|launcher| launcher.resources.is_none());
    if let (true, Some(spec)) = (has_default, &mut launcher.spec) {
        let containers = spec.init_containers.iter_mut().flatten();
        let containers = containers.chain(&mut spec.containers);
        let own =
            containers.filter(|container| [AGENT_VOLUME, CONTAINER].contains(&&*container.name));
        own.for_each(|container| container.resources = None);
    }
    (launcher != *usual).then_some(launcher)
}
