//! Gives a new launcher the pull secrets that its workers get from their ServiceAccount, because it
//! has another account.

use ipu_api::naming;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Client;
use kube::api::Api;

use super::observe::ObserveError;
use super::plan::Plan;
use super::validate::ValidJob;

/// Adds the pull secrets of the workers' ServiceAccount to the launcher of a plan, if the template
/// has none. The admission of Pods does the same for the workers. An account that does not exist
/// has none.
pub async fn add(client: &Client, job: &ValidJob, plan: &mut Plan) -> Result<(), ObserveError> {
    let name = naming::launcher(&job.name);
    let mut pods = plan.create_pods.iter_mut();
    let launcher = pods.find(|pod| pod.metadata.name.as_ref() == Some(&name));
    let Some(launcher) = launcher.filter(|pod| has_none(pod)) else {
        return Ok(());
    };
    let account = job.template.service_account();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &job.namespace);
    let found = accounts.get_opt(account).await;
    let found = found.map_err(|source| ObserveError::ServiceAccount(account.to_owned(), source))?;
    let spec = launcher.spec.get_or_insert_default();
    spec.image_pull_secrets = found.and_then(|account| account.image_pull_secrets);
    Ok(())
}

fn has_none(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let secrets = spec.and_then(|spec| spec.image_pull_secrets.as_ref());
    secrets.is_none_or(Vec::is_empty)
}
