//! The cluster's cgroups, in hierarchies of version 1 and of version 2.

pub mod memory;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    files::{At, FileError, make_dir, read},
    plan::CGROUP,
};

/// The folder in which the kernel shows them.
const ROOT: &str = "/sys/fs/cgroup";

/// Makes the cgroup of all containers of a node in every hierarchy, and returns its path for the
/// kubelet.
pub fn make(node: &str) -> Result<String, FileError> {
    let path = format!("{CGROUP}/{node}");
    for hierarchy in hierarchies()?.iter().filter(|dir| takes_limits(dir)) {
        make_dir(&hierarchy.join(&path))?;
        prepare(hierarchy, node)?;
    }
    Ok(format!("/{path}"))
}

/// Moves this process into the cgroups of another one.
pub fn join(pid: i32) -> Result<(), FileError> {
    for line in read(Path::new(&format!("/proc/{pid}/cgroup")))?.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let path = path.trim_start_matches('/');
        for controller in controllers.split(',') {
            let procs = hierarchy_of(controller).join(path).join("cgroup.procs");
            fs::write(&procs, std::process::id().to_string()).at("write", &procs)?;
        }
    }
    Ok(())
}

/// Removes all cgroups of the cluster. It waits at most `limit` until the last process has ended.
pub fn remove(limit: Duration) -> Result<(), FileError> {
    let begin = Instant::now();
    loop {
        let roots = left()?;
        if roots.is_empty() || begin.elapsed() > limit {
            return Ok(());
        }
        for root in roots {
            // A cgroup with a process remains, and is tried again.
            let _ = remove_tree(&root);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Cgroups of the cluster that still exist.
pub fn left() -> Result<Vec<PathBuf>, FileError> {
    let roots = hierarchies()?.into_iter().map(|dir| dir.join(CGROUP));
    Ok(roots.filter(|dir| dir.exists()).collect())
}

/// Version 2 has one hierarchy at the root; version 1 has one for each controller, and often one of
/// version 2 beside them.
fn hierarchies() -> Result<Vec<PathBuf>, FileError> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root).at("read", root)? {
        let entry = entry.at("read", root)?;
        // Controllers that share a hierarchy are links to it.
        let is_dir = entry.file_type().at("read", &entry.path())?.is_dir();
        if is_dir {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The path of a controller's hierarchy, from a line of `/proc/PID/cgroup`. The hierarchy of
/// version 2 has no name there.
fn hierarchy_of(controller: &str) -> PathBuf {
    let root = Path::new(ROOT);
    match controller {
        "" if root.join("cgroup.controllers").exists() => root.to_owned(),
        "" => root.join("unified"),
        named => root.join(named.trim_start_matches("name=")),
    }
}

/// Whether limits of containers are set here. The hierarchy of version 2 beside those of version 1
/// has no controllers: runc makes its cgroups there by itself.
fn takes_limits(hierarchy: &Path) -> bool {
    hierarchy == Path::new(ROOT) || !hierarchy.join("cgroup.controllers").exists()
}

/// Configures a new cgroup, so that it can hold processes.
fn prepare(hierarchy: &Path, node: &str) -> Result<(), FileError> {
    let ours = hierarchy.join(CGROUP);
    if hierarchy.join("cgroup.controllers").exists() {
        for dir in [hierarchy, &ours] {
            let path = dir.join("cgroup.subtree_control");
            for controller in ["cpuset", "cpu", "io", "memory", "pids"] {
                // No test needs a controller that the kernel lacks.
                let _ = fs::write(&path, format!("+{controller}"));
            }
        }
    }
    // In version 1, a new cpuset is empty and accepts no process.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if hierarchy.join("cgroup.controllers").exists() || !hierarchy.join(file).exists() {
            continue;
        }
        let all = read(&hierarchy.join(file))?;
        for dir in [ours.clone(), ours.join(node)] {
            let path = dir.join(file);
            fs::write(&path, &all).at("write", &path)?;
        }
    }
    Ok(())
}

/// Removes a cgroup and those in it, the innermost first. The kernel removes their files.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}
