//! The cache directory of modules and their compiled code. It stays below a size limit, so that the
//! kubelet does not evict the Pod. The least recently used module is evicted first, an active one
//! last.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::stored_module::{InvalidSignatures, StoredModule};

/// Size limit of the directory, in bytes, without the one module that is being compiled. The chart
/// sets the limit of the volume to twice as much.
pub const CACHE_LIMIT: u64 = 256 << 20;

/// Numbers the temporary files: two versions of a policy can store the same module at once.
static TEMP_FILES: AtomicU64 = AtomicU64::new(0);

/// The cache directory.
pub struct CacheDir {
    root: PathBuf,
    limit: u64,
    /// Digests of the active modules, without `sha256:`. Locked while the directory changes.
    active: Mutex<BTreeSet<String>>,
    pub(super) invalid_signatures: InvalidSignatures,
}

/// A module or its compiled code, with the small files beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    files: Vec<PathBuf>,
    bytes: u64,
    used: SystemTime,
    is_active: bool,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The file is stored.
    Stored,
    /// The file is larger than the limit of the directory.
    TooLarge,
}

impl CacheDir {
    /// The cache in the directory `root`, of at most `limit` bytes.
    pub fn new(root: PathBuf, limit: u64) -> Self {
        Self {
            root,
            limit,
            active: Mutex::default(),
            invalid_signatures: InvalidSignatures::default(),
        }
    }

    /// Returns the directory of the modules. Compiled code has other directories.
    pub(super) fn modules(&self) -> PathBuf {
        self.root.join("modules")
    }

    /// Reads the module with this digest, and its signatures by these keys.
    pub(super) async fn read(
        &self,
        digest: String,
        fingerprints: Vec<Vec<String>>,
    ) -> io::Result<Option<StoredModule>> {
        let folder = self.modules();
        let reading = spawn_blocking(move || StoredModule::read(&folder, &digest, &fingerprints));
        reading.await.map_err(io::Error::other)?
    }

    /// Records that the module with this digest was used.
    pub(super) async fn touch(&self, digest: &str) {
        let path = self.modules().join(format!("{digest}.wasm"));
        // If the file was deleted, the next fetch uses its source.
        let touched = spawn_blocking(move || {
            let file = File::options().append(true).open(path)?;
            file.set_modified(SystemTime::now())
        });
        let _ = touched.await;
    }

    /// Sets the digests of the active modules, which are evicted last.
    pub(super) async fn set_active(&self, digests: BTreeSet<String>) {
        *self.active.lock().await = digests;
    }

    /// Evicts files until the directory is below its limit.
    pub(super) async fn trim(&self) {
        let active = self.active.lock().await;
        if let Err(error) = self.evict(0, &active).await {
            let path = self.root.display();
            tracing::warn!(%path, %error, "failed to free space in the folder for modules");
        }
    }

    /// Evicts files until there is space, then writes a file atomically.
    pub(super) async fn write(&self, path: PathBuf, bytes: Vec<u8>) -> io::Result<Written> {
        let active = self.active.lock().await;
        let size = bytes.len() as u64;
        if size > self.limit {
            return Ok(Written::TooLarge);
        }
        self.evict(size, &active).await?;
        let written = spawn_blocking(move || write_atomically(&path, &bytes));
        written.await.map_err(io::Error::other)??;
        Ok(Written::Stored)
    }

    async fn evict(&self, bytes: u64, active: &BTreeSet<String>) -> io::Result<()> {
        let (root, limit) = (self.root.clone(), self.limit.saturating_sub(bytes));
        let active = active.clone();
        let evicting = spawn_blocking(move || {
            let mut items = BTreeMap::new();
            collect_items(&root, &mut items)?;
            for (path, item) in &mut items {
                let name = path.file_name().and_then(|name| name.to_str());
                // The name of compiled code starts with the digest of its module.
                let digest = name.and_then(|name| name.split('-').next());
                item.is_active = digest.is_some_and(|digest| active.contains(digest));
            }
            for item in evictions(items.into_values().collect(), limit) {
                tracing::info!(
                    file = %item.files[0].display(),
                    bytes = item.bytes,
                    "removed the file of a module, to free space for others"
                );
                for file in &item.files {
                    ignore_not_found(fs::remove_file(file))?;
                }
            }
            Ok(())
        });
        evicting.await.map_err(io::Error::other)?
    }
}

/// Selects the items to delete so that the others take at most `limit` bytes: least recently used
/// first, active last.
fn evictions(mut items: Vec<Item>, limit: u64) -> Vec<Item> {
    items.sort_by_key(|item| (item.is_active, item.used));
    let mut taken: u64 = items.iter().map(|item| item.bytes).sum();
    let mut evicted = Vec::new();
    for item in items {
        if taken <= limit {
            break;
        }
        taken -= item.bytes;
        evicted.push(item);
    }
    evicted
}

/// Collects all files below a directory. `x`, `x.stats` and `x.signature-y` are one item.
fn collect_items(folder: &Path, items: &mut BTreeMap<PathBuf, Item>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Some(metadata) = ignore_not_found(entry.metadata())? else {
            continue;
        };
        if metadata.is_dir() {
            collect_items(&entry.path(), items)?;
        } else if metadata.is_file() {
            let item = items.entry(entry.path().with_extension(""));
            let item = item.or_insert_with(|| Item {
                files: Vec::new(),
                bytes: 0,
                used: SystemTime::UNIX_EPOCH,
                is_active: false,
            });
            item.files.push(entry.path());
            item.bytes += metadata.len();
            item.used = item.used.max(metadata.modified()?);
        }
    }
    Ok(())
}

/// Turns "not found" into `None`: another process can have removed the file.
fn ignore_not_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let number = TEMP_FILES.fetch_add(1, Ordering::Relaxed);
    let part = path.with_extension(format!("part-{}-{number}", std::process::id()));
    fs::write(&part, bytes)?;
    fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn item(name: &str, bytes: u64, used: u64, is_active: bool) -> Item {
        Item {
            files: vec![name.into()],
            bytes,
            used: SystemTime::UNIX_EPOCH + Duration::from_secs(used),
            is_active,
        }
    }

    #[test]
    fn the_oldest_item_is_evicted_first_and_an_active_one_last() {
        let items = vec![
            item("new", 40, 9, false),
            item("active", 40, 1, true),
            item("old", 40, 2, false),
            item("newest-active", 40, 10, true),
        ];
        for (limit, expected) in [
            (200, vec![]),
            (160, vec![]),
            (159, vec!["old"]),
            (100, vec!["old", "new"]),
            (79, vec!["old", "new", "active"]),
            (0, vec!["old", "new", "active", "newest-active"]),
        ] {
            let gone = evictions(items.clone(), limit);
            let names: Vec<_> = gone
                .iter()
                .map(|item| item.files[0].to_str().unwrap())
                .collect();
            assert_eq!(names, expected, "{limit}");
        }
    }

    /// Bytes of all files below a folder.
    fn taken(folder: &Path) -> u64 {
        let mut items = BTreeMap::new();
        collect_items(folder, &mut items).unwrap();
        items.values().map(|item| item.bytes).sum()
    }

    #[tokio::test]
    async fn the_directory_stays_below_its_limit() {
        let root = tempfile::tempdir().unwrap();
        let folder = CacheDir::new(root.path().to_owned(), 300);
        folder.set_active(["m0".to_owned()].into()).await;
        let path = |number: u32| folder.modules().join(format!("m{number}.wasm"));
        for number in 0..10 {
            let written = folder.write(path(number), vec![0; 60]).await.unwrap();
            assert_eq!(written, Written::Stored);
            assert!(taken(root.path()) <= 300);
            // Compiled code, which is written without an eviction before.
            let compiled = root.path().join("compiled/modules/version");
            fs::create_dir_all(&compiled).unwrap();
            fs::write(compiled.join(format!("c{number}")), [0; 90]).unwrap();
            fs::write(compiled.join(format!("c{number}.stats")), [0; 5]).unwrap();
            folder.trim().await;
            assert!(taken(root.path()) <= 300, "{}", taken(root.path()));
        }
        assert!(path(0).exists(), "it is active");
        assert!(path(9).exists(), "it is the last");
        assert!(!path(1).exists());
        let much = folder.write(path(10), vec![0; 301]).await.unwrap();
        assert_eq!(much, Written::TooLarge);
        assert!(path(0).exists() && !path(10).exists());
    }
}
