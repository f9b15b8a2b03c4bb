//! A cgroup that limits the memory of its processes, as that of a container does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::ROOT;
use crate::files::{At, FileError, read};

/// Longest time until the end of the last process.
const LEAVE: Duration = Duration::from_secs(10);

/// Failure to make or read the cgroup.
#[derive(Debug, thiserror::Error)]
pub enum MemoryCgroupError {
    /// The kernel does not limit the memory of cgroups on this machine.
    #[error(
        "no hierarchy of cgroups below {ROOT} limits memory, neither of version 2 nor of version 1"
    )]
    NoController,
    /// A file of it cannot be made, read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of it has unexpected content.
    #[error("{} has no number {key:?}: {content:?}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The missing key.
        key: &'static str,
        /// Its content.
        content: String,
    },
}

/// The version of a hierarchy. The versions differ in the names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The cgroup. When it is dropped, it is removed after its processes have ended.
#[derive(Debug)]
pub struct MemoryCgroup {
    folder: PathBuf,
    version: Version,
}

impl MemoryCgroup {
    /// Makes a cgroup of this name for at most `limit` bytes. If the limit is exceeded under
    /// version 2, the kernel kills all of its processes, as it does in a container.
    pub fn make(name: &str, limit: u64) -> Result<Self, MemoryCgroupError> {
        let (root, version) = hierarchy().ok_or(MemoryCgroupError::NoController)?;
        if version == Version::Two {
            let path = root.join("cgroup.subtree_control");
            fs::write(&path, "+memory").at("write", &path)?;
        }
        let folder = root.join(name);
        fs::create_dir(&folder).at("make the cgroup", &folder)?;
        let made = Self { folder, version };
        match version {
            Version::One => made.set("memory.limit_in_bytes", limit)?,
            Version::Two => {
                made.set("memory.max", limit)?;
                made.set("memory.oom.group", 1)?;
            }
        }
        Ok(made)
    }

    /// The file into which a process writes its id to join.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Returns the number of its processes that the kernel has killed for memory.
    pub fn oom_kills(&self) -> Result<u64, MemoryCgroupError> {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        self.number(file, "oom_kill")
    }

    /// The peak memory of its processes together, in bytes.
    pub fn peak(&self) -> Result<u64, MemoryCgroupError> {
        let file = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        self.number(file, "")
    }

    fn set(&self, file: &str, value: u64) -> Result<(), FileError> {
        let path = self.folder.join(file);
        fs::write(&path, value.to_string()).at("write", &path)
    }

    /// The number after `key` in a file; without a key, the whole file.
    fn number(&self, file: &str, key: &'static str) -> Result<u64, MemoryCgroupError> {
        let path = self.folder.join(file);
        let content = read(&path)?;
        let number = |line: &str| {
            let (before, number) = line.rsplit_once(' ').unwrap_or(("", line));
            (before == key).then(|| number.parse().ok())?
        };
        let found = content.lines().find_map(number);
        found.ok_or(MemoryCgroupError::Content { path, key, content })
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let begin = Instant::now();
        while let Err(error) = fs::remove_dir(&self.folder) {
            if error.kind() != io::ErrorKind::ResourceBusy || begin.elapsed() > LEAVE {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The hierarchy that limits memory. Version 2 may be at the root or beside hierarchies of version
/// 1.
fn hierarchy() -> Option<(PathBuf, Version)> {
    let root = Path::new(ROOT);
    let has_memory = |folder: &PathBuf| {
        let controllers = fs::read_to_string(folder.join("cgroup.controllers"));
        controllers.is_ok_and(|text| text.split_whitespace().any(|one| one == "memory"))
    };
    let two = [root.to_owned(), root.join("unified")];
    let one = root.join("memory");
    let two = two.into_iter().find(has_memory);
    two.map(|folder| (folder, Version::Two)).or_else(|| {
        let is_there = one.join("memory.limit_in_bytes").exists();
        is_there.then_some((one, Version::One))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_both_versions_are_read() {
        let files = [
            (
                Version::One,
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                "memory.max_usage_in_bytes",
            ),
            (
                Version::Two,
                "memory.events",
                "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n",
                "memory.peak",
            ),
        ];
        for (version, events, text, peak) in files {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(events), text).unwrap();
            std::fs::write(folder.path().join(peak), "4096\n").unwrap();
            let folder = folder.path().to_owned();
            let cgroup = MemoryCgroup { folder, version };
            assert_eq!(cgroup.oom_kills().unwrap(), 2, "{version:?}");
            assert_eq!(cgroup.peak().unwrap(), 4096, "{version:?}");
        }
    }
}
