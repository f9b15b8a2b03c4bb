//! Stored modules, by digest, with the signatures that verify them: in the folder of the Pod, and
//! in the one that outlives it.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use ipu_api::ipupolicy::ModuleSource;

use super::cache_dir::{CacheDir, Written};
use super::keys::KeyList;
use super::shared_dir::SharedDir;
use super::stored_module::{InvalidSignatures, StoredModule, Unusable, file_names, files};
use super::{Fetched, Sources};
use ipu_oci::reference::is_digest;

impl Sources {
    /// Returns a stored module if its digest is right, and a key of each list signed it. The folder
    /// of the Pod is first: it answers also while a network volume does not.
    pub(super) async fn cached(&self, source: &ModuleSource, lists: &[KeyList]) -> Option<Fetched> {
        let digest = stored_digest(source)?;
        let of_list = |list: &KeyList| {
            let keys = list.keys().iter();
            keys.map(|key| key.fingerprint().to_owned()).collect()
        };
        let fingerprints: Vec<Vec<String>> = lists.iter().map(of_list).collect();
        let verify = |read, folder: &Path, invalid: &InvalidSignatures| {
            verified(read, folder, digest, lists, invalid)
        };
        if let Some(cache) = &self.cache {
            let read = cache.read(digest.to_owned(), fingerprints.clone()).await;
            if let Some(fetched) = verify(read, &cache.modules(), &cache.invalid_signatures) {
                cache.touch(digest).await;
                self.complete_shared(digest, &fetched).await;
                return Some(fetched);
            }
        }
        let shared = self.shared.as_ref()?;
        let read = shared.read(digest.to_owned(), fingerprints).await;
        let fetched = verify(read, shared.root(), &shared.invalid_signatures)?;
        if let Some(cache) = &self.cache {
            store_in_pod(cache, digest, &fetched).await;
        }
        Some(fetched)
    }

    /// Stores a module, and the signatures of the keys that signed it. Failures are only logged:
    /// the next start fetches the module again.
    pub(super) async fn store(&self, source: &ModuleSource, fetched: &Fetched) {
        let Some(digest) = stored_digest(source) else {
            return;
        };
        if let Some(cache) = &self.cache {
            store_in_pod(cache, digest, fetched).await;
        }
        if let Some(shared) = &self.shared {
            store_shared(shared, digest, fetched).await;
        }
    }

    /// Stores a module of the Pod's folder on the volume, if it is missing there: the volume may
    /// have been full or away when the module was fetched.
    async fn complete_shared(&self, digest: &str, fetched: &Fetched) {
        if let Some(shared) = &self.shared
            && let Ok(true) = shared.lacks(file_names(digest, fetched)).await
        {
            store_shared(shared, digest, fetched).await;
        }
    }

    /// Deletes the modules that no version of any policy refers to, with their signatures. Active
    /// modules are evicted last.
    pub async fn prune(&self, desired: &[ModuleSource], active: &[ModuleSource]) {
        let Some(cache) = &self.cache else {
            return;
        };
        let referenced = digests(desired);
        cache.set_active(digests(active)).await;
        let Ok(mut files) = tokio::fs::read_dir(cache.modules()).await else {
            return;
        };
        while let Ok(Some(file)) = files.next_entry().await {
            let path = file.path();
            let digest = path.file_stem().and_then(|stem| stem.to_str());
            if digest.is_some_and(|digest| referenced.contains(digest)) {
                continue;
            }
            if let Err(error) = tokio::fs::remove_file(&path).await {
                let path = path.display();
                tracing::warn!(%path, %error, "failed to remove an unused module");
            }
        }
    }

    /// Deletes the modules that no policy of either process names from the folder that outlives the
    /// Pod. `None`: this version cannot read some policies, and deletes none.
    pub async fn prune_shared(&self, named: Option<Vec<ModuleSource>>) {
        let Some(shared) = &self.shared else {
            return;
        };
        let named = named.map(|modules| digests(&modules));
        if let Err(error) = shared.prune(named).await {
            let path = shared.root().display();
            tracing::warn!(%path, %error, "failed to remove unused modules");
        }
    }

    /// Evicts files after a module was compiled.
    pub async fn trim(&self) {
        if let Some(cache) = &self.cache {
            cache.trim().await;
        }
    }
}

/// Returns the digest under which a module is stored, without `sha256:`. The files of the image are
/// local too.
fn stored_digest(source: &ModuleSource) -> Option<&str> {
    let digest = source.digest.as_deref().filter(|digest| is_digest(digest));
    let digest = digest?.strip_prefix("sha256:");
    digest.filter(|_| source.image.is_none())
}

fn digests(modules: &[ModuleSource]) -> BTreeSet<String> {
    let digests = modules.iter().filter_map(stored_digest);
    digests.map(str::to_owned).collect()
}

/// Returns a module that was read from a folder, if it is usable. Otherwise it is fetched again,
/// and replaced.
fn verified(
    read: io::Result<Option<StoredModule>>,
    folder: &Path,
    digest: &str,
    lists: &[KeyList],
    invalid: &InvalidSignatures,
) -> Option<Fetched> {
    let path = folder.display();
    let stored = match read {
        Ok(stored) => stored?,
        Err(error) => {
            tracing::warn!(%path, digest, %error, "failed to read a stored module");
            return None;
        }
    };
    match stored.verified(digest, lists) {
        Ok(fetched) => {
            invalid.remove(digest);
            Some(fetched)
        }
        Err(error) => {
            if error == Unusable::Unsigned && !invalid.add(digest) {
                return None;
            }
            tracing::warn!(%path, digest, %error, "a stored module is not used");
            None
        }
    }
}

async fn store_shared(shared: &SharedDir, digest: &str, fetched: &Fetched) {
    if let Err(error) = shared.store(files(digest, fetched)).await {
        let path = shared.root().display();
        tracing::warn!(%path, %error, digest, "failed to store a module for later Pods; this one works without it");
    }
}

async fn store_in_pod(cache: &CacheDir, digest: &str, fetched: &Fetched) {
    for file in files(digest, fetched) {
        let (path, bytes) = (cache.modules().join(&file.name), file.bytes.len());
        match cache.write(path.clone(), file.bytes).await {
            Ok(Written::Stored) => {}
            Ok(Written::TooLarge) => {
                let path = path.display();
                tracing::warn!(%path, bytes, "a module is too large to store for the next start, which fetches it again");
            }
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "failed to store a module for the next start");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
