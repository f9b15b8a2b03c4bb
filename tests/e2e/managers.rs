//! The managers of jobs that trials need beside the operator: JobSet, and Kueue. Each is installed
//! once, for all trials that need it.

use libtest_mimic::Failed;
use tests::kueue::installed::Admin;

use crate::fixture::Fixture;
use crate::lab::Lab;

/// The installed managers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Managers {
    /// None.
    #[default]
    Neither,
    /// JobSet.
    JobSet,
    /// JobSet, and Kueue, whose webhooks are called for every Pod.
    Both,
}

/// The kinds of Kueue that an admin creates. A flavor and a check remain while a ClusterQueue names
/// them.
const QUEUES: [&str; 4] = [
    "localqueues",
    "clusterqueues",
    "resourceflavors",
    "admissionchecks",
];

/// Installs the managers that are missing, and removes the others.
pub(crate) fn ensure(lab: &Lab, wanted: Managers) -> Result<(), Failed> {
    let mut installed = lab.managers.lock();
    let admin = Admin {
        settings: &lab.settings,
        tools: &lab.tools,
        progress: &lab.progress,
    };
    if wanted < Managers::Both && *installed == Managers::Both {
        admin.remove_kueue()?;
        *installed = Managers::JobSet;
    }
    if wanted < Managers::JobSet && *installed == Managers::JobSet {
        admin.remove_jobset()?;
        *installed = Managers::Neither;
    }
    if wanted > Managers::Neither && *installed == Managers::Neither {
        admin.install_jobset()?;
        *installed = Managers::JobSet;
    }
    if wanted > Managers::JobSet && *installed == Managers::JobSet {
        admin.install_kueue()?;
        *installed = Managers::Both;
    }
    Ok(())
}

/// Deletes all queues, if Kueue is installed. It does not end while a Workload uses one of them.
pub(crate) async fn delete_queues(fixture: &Fixture) -> Result<(), Failed> {
    if *fixture.lab.managers.lock() != Managers::Both {
        return Ok(());
    }
    for kind in QUEUES {
        let kind = format!("{kind}.kueue.x-k8s.io");
        let delete = ["delete", &kind, "--all", "--timeout=120s"];
        fixture.kubectl(&delete).await?;
    }
    Ok(())
}
