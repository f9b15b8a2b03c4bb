//! Pure: the ConfigMap that tells mpirun which workers there are and how to reach them.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::ConfigMap;

use super::{agent, metadata};
use crate::job::validate::ValidJob;
use crate::names;

/// Where the ConfigMap is mounted, in the launcher and at the same place in every worker.
pub const FOLDER: &str = "/etc/ipu-operator/job";

/// File name of the script that mpirun calls in the place of ssh.
pub const KUBEEXEC: &str = "kubeexec.sh";

/// File name of the list of workers.
pub const HOSTFILE: &str = "hostfile";

/// The ConfigMap with both files.
pub fn config_map(job: &ValidJob) -> ConfigMap {
    ConfigMap {
        metadata: metadata(job, names::config_map(&job.name)),
        data: Some(
            [
                (KUBEEXEC.to_owned(), kubeexec()),
                (HOSTFILE.to_owned(), hostfile(job)),
            ]
            .into(),
        ),
        ..ConfigMap::default()
    }
}

/// The first argument is the worker, untouched. The rest carries quotes that mpirun put there for
/// a remote shell, so it must reach one as a single string.
fn kubeexec() -> String {
    format!(
        "#!/bin/sh\n\
         # Called by mpirun in the place of ssh: kubeexec.sh <worker Pod> <command of a shell>...\n\
         POD=\"$1\"\n\
         shift\n\
         exec {agent} exec \"$POD\" -- /bin/sh -c \"$*\"\n",
        agent = agent::PROGRAM
    )
}

/// One slot each: `-np <workers>` puts one rank on each GCD.
fn hostfile(job: &ValidJob) -> String {
    job.worker_names()
        .iter()
        .fold(String::new(), |mut text, worker| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{worker} slots=1");
            text
        })
}
