//! Ends the cluster. Only its logs remain.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use super::{ClusterError, lock_path, workers::made_mount_points};
use crate::{
    cgroups,
    files::{At, FileError, remove},
    lock::Lock,
    network::{self, Ip},
    plan::MOUNT_POINTS,
    process::Daemons,
    progress::Progress,
    settings::Settings,
};

/// Longest time until the end of processes and cgroups.
const LIMIT: Duration = Duration::from_secs(30);
/// The part of the run folder that `down` keeps.
const KEPT: [&str; 2] = ["logs", "lock"];

/// Ends the cluster in any state, and checks that nothing is left.
pub fn down(settings: &Settings, progress: &Progress) -> Result<(), ClusterError> {
    if !settings.run.exists() && left(settings)?.is_empty() {
        progress.step("found no cluster").done();
        return Ok(());
    }
    let _lock = Lock::try_take(&lock_path(settings))?;
    remove_all(settings, progress)
}

/// Like [`down`], for a caller that holds the lock.
pub(super) fn remove_all(settings: &Settings, progress: &Progress) -> Result<(), ClusterError> {
    if left(settings)?.is_empty() && is_empty(&settings.run) {
        return Ok(());
    }
    let ip = Ip::recorded(&settings.run);
    progress.run("ended the cluster and removed what it had made", || {
        end_processes(&settings.run);
        cgroups::remove(LIMIT)?;
        network::remove(&ip);
        for path in made_mount_points(&settings.run).iter().rev() {
            // A folder that another program uses now is not empty, and remains.
            let _ = fs::remove_dir(path);
        }
        clear(&settings.run)?;
        let left = left(settings)?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(ClusterError::Left { left })
        }
    })
}

/// Whether there is anything that [`down`] would end. Unreadable parts do not count.
pub fn is_there(settings: &Settings) -> bool {
    left(settings).is_ok_and(|left| !left.is_empty())
}

/// Returns the remains of the cluster outside its folders.
pub(super) fn left(settings: &Settings) -> Result<Vec<String>, FileError> {
    let processes = Daemons::of(&settings.run).marked();
    let mut left: Vec<String> = processes
        .iter()
        .map(|process| format!("process {}", process.pid))
        .collect();
    let cgroups = cgroups::left()?;
    left.extend(
        cgroups
            .iter()
            .map(|dir| format!("cgroup {}", dir.display())),
    );
    left.extend(network::left()?);
    let made = made_mount_points(&settings.run);
    let ours = MOUNT_POINTS
        .iter()
        .filter(|(path, _)| made.iter().any(|m| m == path));
    let there = ours.filter(|(path, _)| Path::new(path).exists());
    left.extend(there.map(|(path, _)| format!("folder {path}")));
    Ok(left)
}

/// Ends every process with the mark of this run. When the first process of a node ends, so do all
/// processes of the node. Most are therefore gone before the loop reaches them.
fn end_processes(run: &Path) {
    let daemons = Daemons::of(run);
    let begin = Instant::now();
    loop {
        let processes = daemons.marked();
        if processes.is_empty() || begin.elapsed() > LIMIT {
            return;
        }
        for process in processes {
            process.end(Duration::from_secs(5));
        }
    }
}

/// Whether the run folder contains only what `down` keeps.
fn is_empty(run: &Path) -> bool {
    fs::read_dir(run).is_ok_and(|entries| {
        let mut names = entries
            .filter_map(Result::ok)
            .map(|entry| entry.file_name());
        names.all(|name| KEPT.iter().any(|kept| name == *kept))
    })
}

fn clear(run: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(run).at("read", run)? {
        let entry = entry.at("read", run)?;
        if !KEPT.iter().any(|kept| entry.file_name() == *kept) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
