//! The folder of modules that outlives a Pod: a volume to which all replicas of both processes
//! write at once, and others may write too. The operator works without it while it is full,
//! read-only or unreachable.

mod access;

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use self::access::VolumeAccess;
use super::regular_file::open_regular;
use super::stored_module::{InvalidSignatures, NamedFile, StoredModule, module_of_file};

/// Size limit of the modules in the folder, in bytes.
pub const SHARED_LIMIT: u64 = 256 << 20;

/// Age below which no file is removed: another replica may have written it for a policy that this
/// one has not seen. The clocks of nodes and file servers may be an hour off.
const GRACE: Duration = Duration::from_hours(2);

/// Age from which the time of a file that is still named is renewed.
const REFRESH: Duration = Duration::from_mins(30);

/// Start of the names of temporary files.
const PART: &str = "part-";

/// A folder of modules that several processes share.
pub struct SharedDir {
    root: PathBuf,
    limit: u64,
    /// Digests of the modules that IPUPolicies name, without `sha256:`. `None` while some of them
    /// are not known.
    named: Mutex<Option<BTreeSet<String>>>,
    access: VolumeAccess,
    pub(super) invalid_signatures: InvalidSignatures,
}

impl SharedDir {
    /// The folder `root`, with modules of at most `limit` bytes.
    pub fn new(root: PathBuf, limit: u64) -> Self {
        Self {
            root,
            limit,
            named: Mutex::default(),
            access: VolumeAccess::default(),
            invalid_signatures: InvalidSignatures::default(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Reads the module with this digest, and its signatures by the keys of these lists.
    pub(super) async fn read(
        &self,
        digest: String,
        fingerprints: Vec<Vec<String>>,
    ) -> io::Result<Option<StoredModule>> {
        self.access(move |root| StoredModule::read(root, &digest, &fingerprints))
            .await
    }

    /// Whether one of these files is missing, or something else has its name.
    pub(super) async fn lacks(&self, names: Vec<String>) -> io::Result<bool> {
        self.access(move |root| {
            for name in &names {
                let found = ignore_not_found(fs::symlink_metadata(root.join(name)))?;
                if !found.is_some_and(|found| found.is_file()) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    /// Writes the files of a module, each atomically.
    pub(super) async fn store(&self, files: Vec<NamedFile>) -> io::Result<()> {
        let (limit, named) = (self.limit, self.named.lock().clone());
        self.access(move |root| {
            fs::create_dir_all(root)?;
            make_space(root, limit, &files, named.as_ref())?;
            files
                .iter()
                .try_for_each(|file| write_atomically(root, file))
        })
        .await
    }

    /// Sets the digests of the modules that IPUPolicies name, and removes all others that are older
    /// than the grace period. `None`: this version cannot read some IPUPolicies, and removes no
    /// module.
    pub(super) async fn prune(&self, named: Option<BTreeSet<String>>) -> io::Result<()> {
        self.named.lock().clone_from(&named);
        self.access(move |root| remove_unnamed(root, named.as_ref()))
            .await
    }

    /// Does blocking work on the folder.
    async fn access<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let root = self.root.clone();
        self.access.run(move || work(&root)).await
    }
}

/// Removes unnamed modules if the folder would exceed its limit with these files. Named ones stay.
fn make_space(
    root: &Path,
    limit: u64,
    files: &[NamedFile],
    named: Option<&BTreeSet<String>>,
) -> io::Result<()> {
    let is_replaced = |name: &str| files.iter().any(|file| file.name == name);
    let added: u64 = files.iter().map(|file| file.bytes.len() as u64).sum();
    let fits = || Ok::<_, io::Error>(taken(root, is_replaced)?.saturating_add(added) <= limit);
    if fits()? {
        return Ok(());
    }
    let removed = remove_unnamed(root, named);
    if fits()? {
        return Ok(());
    }
    removed?;
    let problem =
        format!("with this module it would hold more than {limit} bytes, the most that it may");
    Err(io::Error::new(ErrorKind::StorageFull, problem))
}

/// Returns the bytes of the operator's files, without those that are about to be replaced.
fn taken(root: &Path, is_replaced: impl Fn(&str) -> bool) -> io::Result<u64> {
    let mut bytes: u64 = 0;
    for_each_file(root, |name, _, found| {
        if !is_replaced(name) && (module_of_file(name).is_some() || name.starts_with(PART)) {
            bytes = bytes.saturating_add(found.len());
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// Removes the files of modules that no IPUPolicy names, and temporary files of processes that have
/// ended. The others get the present time, so that age means how long no replica has known a policy
/// that names them.
fn remove_unnamed(root: &Path, named: Option<&BTreeSet<String>>) -> io::Result<()> {
    let now = SystemTime::now();
    for_each_file(root, |name, entry, found| {
        let age = age(found.modified()?, now);
        if is_removable(name, age, named) {
            if ignore_not_found(fs::remove_file(entry.path()))?.is_some() {
                tracing::info!(name, "removed the file of a module that no IPUPolicy names");
            }
        } else if age >= REFRESH && is_named(name, named) {
            let opened = open_regular(File::options().write(true), &entry.path());
            if let Some(file) = ignore_not_found(opened)? {
                file.set_modified(now)?;
            }
        }
        Ok(())
    })
}

/// Time since a file was written. One that seems to come from a distant future is old: its time was
/// set by others.
fn age(modified: SystemTime, now: SystemTime) -> Duration {
    match now.duration_since(modified) {
        Ok(age) => age,
        Err(future) if future.duration() > GRACE => Duration::MAX,
        Err(_) => Duration::ZERO,
    }
}

/// Whether a file belongs to a module that an IPUPolicy names.
fn is_named(name: &str, named: Option<&BTreeSet<String>>) -> bool {
    let digest = module_of_file(name);
    digest.is_some_and(|digest| named.is_some_and(|named| named.contains(digest)))
}

/// Whether a file is the operator's, and nothing needs it.
fn is_removable(name: &str, age: Duration, named: Option<&BTreeSet<String>>) -> bool {
    let is_unnamed = match module_of_file(name) {
        Some(digest) => named.is_some_and(|named| !named.contains(digest)),
        None => name.starts_with(PART),
    };
    is_unnamed && age >= GRACE
}

/// Visits the regular files of the folder, not those below it. Returns the first error after all of
/// them: a file that cannot be removed keeps no other.
fn for_each_file(
    root: &Path,
    mut visit: impl FnMut(&str, &DirEntry, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let Some(entries) = ignore_not_found(fs::read_dir(root))? else {
        return Ok(());
    };
    let mut result = Ok(());
    for entry in entries {
        let entry = entry?;
        let Some(found) = ignore_not_found(entry.metadata())? else {
            continue;
        };
        if let (true, Some(name)) = (found.is_file(), entry.file_name().to_str()) {
            result = result.and(visit(name, &entry, &found));
        }
    }
    result
}

/// Turns "not found" into `None`: another replica can have removed the file.
fn ignore_not_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Writes a file under another name, and renames it. Processes of different Pods have the same
/// process id, so the other name is random.
fn write_atomically(root: &Path, file: &NamedFile) -> io::Result<()> {
    let random = RandomState::new().build_hasher().finish();
    let part = root.join(format!("{PART}{random:016x}"));
    let written = File::create_new(&part).and_then(|mut part| {
        part.write_all(&file.bytes)?;
        part.sync_all()
    });
    let stored = written.and_then(|()| fs::rename(&part, root.join(&file.name)));
    stored.inspect_err(|_| {
        // The partial file is useless; the first error has the cause.
        let _ = fs::remove_file(&part);
    })
}

#[cfg(test)]
mod tests;
