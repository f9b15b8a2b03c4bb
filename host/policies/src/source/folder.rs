//! Keeps the folder of modules and their compiled forms below a size, so that the kubelet never evicts
//! the Pod for it: the least recently used module goes first, an active one last.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::kept::PARTS;

/// Most bytes of the folder, apart from what is being compiled: one module at a time. The chart gives the
/// folder twice as much.
pub const FOLDER_LIMIT: u64 = 256 << 20;

/// The folder, and what must stay in it.
pub struct Folder {
    root: PathBuf,
    limit: u64,
    /// Digests of active modules, without `sha256:`. Locked while the folder is changed.
    active: Mutex<BTreeSet<String>>,
}

/// A module or a compiled form, with the small files beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    files: Vec<PathBuf>,
    bytes: u64,
    used: SystemTime,
    is_active: bool,
}

/// What became of a module that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is there.
    Yes,
    /// It is larger than the folder may be.
    TooLarge,
}

impl Folder {
    /// The folder below which everything lies, of at most so many bytes.
    pub fn new(root: PathBuf, limit: u64) -> Self {
        Self {
            root,
            limit,
            active: Mutex::default(),
        }
    }

    /// Where modules lie; compiled forms lie in other folders.
    pub(super) fn modules(&self) -> PathBuf {
        self.root.join("modules")
    }

    /// The modules of these digests are to stay for as long as there is room.
    pub(super) async fn set_active(&self, digests: BTreeSet<String>) {
        *self.active.lock().await = digests;
    }

    /// Makes the folder as small as it must be.
    pub(super) async fn trim(&self) {
        let active = self.active.lock().await;
        if let Err(error) = self.make_room(0, &active).await {
            let path = self.root.display();
            tracing::warn!(%path, %error, "failed to free space in the folder for modules");
        }
    }

    /// Writes a file so that it is there whole or not at all, once there is room for it.
    pub(super) async fn write(&self, path: PathBuf, bytes: Vec<u8>) -> io::Result<Kept> {
        let active = self.active.lock().await;
        let size = bytes.len() as u64;
        if size > self.limit {
            return Ok(Kept::TooLarge);
        }
        self.make_room(size, &active).await?;
        let written = spawn_blocking(move || write_whole(&path, &bytes));
        written.await.map_err(io::Error::other)??;
        Ok(Kept::Yes)
    }

    async fn make_room(&self, bytes: u64, active: &BTreeSet<String>) -> io::Result<()> {
        let (root, room) = (self.root.clone(), self.limit.saturating_sub(bytes));
        let active = active.clone();
        let making = spawn_blocking(move || {
            let mut items = BTreeMap::new();
            gather(&root, &mut items)?;
            for (path, item) in &mut items {
                let name = path.file_name().and_then(|name| name.to_str());
                // What is compiled of a module is called by its digest too, and by what it is compiled for.
                let digest = name.and_then(|name| name.split('-').next());
                item.is_active = digest.is_some_and(|digest| active.contains(digest));
            }
            for item in surplus(items.into_values().collect(), room) {
                tracing::info!(
                    file = %item.files[0].display(),
                    bytes = item.bytes,
                    "removed the file of a module, to free space for others"
                );
                for file in &item.files {
                    gone_or(fs::remove_file(file))?;
                }
            }
            Ok(())
        });
        making.await.map_err(io::Error::other)?
    }
}

/// The modules to delete so that the rest takes at most `room`: the least recently used first, the active ones last.
fn surplus(mut items: Vec<Item>, room: u64) -> Vec<Item> {
    items.sort_by_key(|item| (item.is_active, item.used));
    let mut taken: u64 = items.iter().map(|item| item.bytes).sum();
    let mut going = Vec::new();
    for item in items {
        if taken <= room {
            break;
        }
        taken -= item.bytes;
        going.push(item);
    }
    going
}

/// All files below a folder, those together that belong together: `x`, `x.stats` and `x.signed-by-y`.
fn gather(folder: &Path, items: &mut BTreeMap<PathBuf, Item>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Some(metadata) = gone_or(entry.metadata())? else {
            continue;
        };
        if metadata.is_dir() {
            gather(&entry.path(), items)?;
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

/// Notes that a file was used.
pub(super) async fn touch(path: PathBuf) {
    // A file that is gone meanwhile is read again from its source.
    let touched = spawn_blocking(move || {
        let file = File::options().append(true).open(path)?;
        file.set_modified(SystemTime::now())
    });
    let _ = touched.await;
}

/// Somebody else may have removed it.
fn gone_or<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let number = PARTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
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
    fn the_oldest_goes_first_and_what_is_active_last() {
        let items = vec![
            item("new", 40, 9, false),
            item("in-force", 40, 1, true),
            item("old", 40, 2, false),
            item("newest-in-force", 40, 10, true),
        ];
        for (room, expected) in [
            (200, vec![]),
            (160, vec![]),
            (159, vec!["old"]),
            (100, vec!["old", "new"]),
            (79, vec!["old", "new", "in-force"]),
            (0, vec!["old", "new", "in-force", "newest-in-force"]),
        ] {
            let gone = surplus(items.clone(), room);
            let names: Vec<_> = gone
                .iter()
                .map(|item| item.files[0].to_str().unwrap())
                .collect();
            assert_eq!(names, expected, "{room}");
        }
    }

    /// Bytes of all files below a folder.
    fn taken(folder: &Path) -> u64 {
        let mut items = BTreeMap::new();
        gather(folder, &mut items).unwrap();
        items.values().map(|item| item.bytes).sum()
    }

    #[tokio::test]
    async fn a_folder_that_is_filled_beyond_its_limit_stays_below_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::new(root.path().to_owned(), 300);
        folder.set_active(["m0".to_owned()].into()).await;
        let path = |number: u32| folder.modules().join(format!("m{number}.wasm"));
        for number in 0..10 {
            let written = folder.write(path(number), vec![0; 60]).await.unwrap();
            assert_eq!(written, Kept::Yes);
            assert!(taken(root.path()) <= 300);
            // As the library leaves its compiled forms, which nobody asks first.
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
        assert_eq!(much, Kept::TooLarge);
        assert!(path(0).exists() && !path(10).exists());
    }
}
