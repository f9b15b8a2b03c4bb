//! A folder that ends with its process. If that process is killed, the next one removes the folder.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{
    files::{At, FileError, remove},
    process::Process,
};

const PREFIX: &str = "ipu-operator-control-plane-";

/// A folder for one run, in the system's folder for temporary files. Its name contains the process
/// that owns it.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a new folder, and removes those of processes that have ended.
    pub(super) fn make() -> Result<Self, FileError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let parent = std::env::temp_dir();
        sweep(&parent);
        let own = i32::try_from(std::process::id())
            .ok()
            .and_then(Process::find);
        let own = own.expect("this process runs");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{}-{number}", own.pid, own.start));
        // It will contain keys.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .at("make the folder", &path)?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next run removes what remains.
        let _ = remove(&self.path);
    }
}

/// Removes the folders of killed runs. A failed removal is left to the next run.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner);
        if owner.is_some_and(|process| !process.is_alive()) {
            let _ = remove(&entry.path());
        }
    }
}

/// The process in a folder's name.
fn owner(name: &str) -> Option<Process> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    Some(Process {
        pid: parts.next()?.parse().ok()?,
        start: parts.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_ended_processes_are_removed_and_others_remain() {
        let parent = tempfile::tempdir().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let own = Process::find(own).unwrap();
        let living = parent
            .path()
            .join(format!("{PREFIX}{}-{}-0", own.pid, own.start));
        let dead = parent.path().join(format!("{PREFIX}{}-1-0", own.pid));
        let other = parent.path().join("something-else");
        for path in [&living, &dead, &other] {
            fs::create_dir(path).unwrap();
        }
        sweep(parent.path());
        assert_eq!(
            [living, dead, other].map(|path| path.exists()),
            [true, false, true]
        );
    }
}
