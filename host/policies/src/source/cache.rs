//! The cache of fetched modules on disk, by digest, with the keys that verified their signatures.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ipu_api::ipupolicy::ModuleSource;
use ipu_guest_host::digest_of;

use super::Sources;
use super::cache_dir::{self, Written};

impl Sources {
    /// Returns a module from the cache if its digest is right and, if it must be signed, one of the keys with these
    /// fingerprints verified its signature before.
    pub(super) async fn cached(&self, source: &ModuleSource, keys: &[&str]) -> Option<Vec<u8>> {
        let path = self.cache_path(source)?;
        let mut is_signed = !must_be_signed(source);
        for key in keys {
            let marker = signature_marker(&path, key);
            is_signed |= tokio::fs::try_exists(marker).await.unwrap_or(false);
        }
        if !is_signed {
            return None;
        }
        let bytes = tokio::fs::read(&path).await.ok()?;
        if Some(digest_of(&bytes).as_str()) != source.digest.as_deref() {
            return None;
        }
        cache_dir::touch(path).await;
        Some(bytes)
    }

    /// Stores a module, and the key that signed it. Failures are only logged: the next start fetches the module again.
    pub(super) async fn store(&self, source: &ModuleSource, bytes: &[u8], signer: Option<String>) {
        let (Some(path), Some(cache)) = (self.cache_path(source), &self.cache) else {
            return;
        };
        let mut written = cache.write(path.clone(), bytes.to_vec()).await;
        if let (Ok(Written::Stored), Some(signer)) = (&written, signer) {
            let marked = tokio::fs::write(signature_marker(&path, &signer), []).await;
            written = marked.map(|()| Written::Stored);
        }
        if let Ok(Written::TooLarge) = written {
            let (path, bytes) = (path.display(), bytes.len());
            tracing::warn!(%path, bytes, "a module is too large to store for the next start, which fetches it again");
        }
        if let Err(error) = written {
            let path = path.display();
            tracing::warn!(%path, %error, "failed to store a module for the next start");
        }
    }

    /// Deletes the modules that no version of any policy refers to, with their markers. Active modules are evicted last.
    pub async fn prune(&self, desired: &[ModuleSource], active: &[ModuleSource]) {
        let Some(cache) = &self.cache else {
            return;
        };
        let digest = |module: &ModuleSource| {
            let digest = module.digest.as_deref()?.strip_prefix("sha256:")?;
            Some(digest.to_owned())
        };
        let referenced: BTreeSet<String> = desired.iter().filter_map(digest).collect();
        let active = active.iter().filter_map(digest).collect();
        cache.set_active(active).await;
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

    /// Evicts files after a module was compiled.
    pub async fn trim(&self) {
        if let Some(cache) = &self.cache {
            cache.trim().await;
        }
    }

    fn cache_path(&self, source: &ModuleSource) -> Option<PathBuf> {
        let cache = self.cache.as_ref()?;
        // The files of the image are local too.
        if source.image.is_some() {
            return None;
        }
        let digest = source.digest.as_ref()?.strip_prefix("sha256:")?;
        Some(cache.modules().join(format!("{digest}.wasm")))
    }
}

fn must_be_signed(source: &ModuleSource) -> bool {
    let oci = source.oci.as_ref();
    oci.is_some_and(|oci| oci.signature.is_some())
}

/// Returns the marker file: it exists if the key with this fingerprint verified the signature of the module.
fn signature_marker(module: &Path, fingerprint: &str) -> PathBuf {
    let key = fingerprint.trim_start_matches("sha256:");
    module.with_extension(format!("signed-by-{key}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::{Client, Config};
    use serde_json::json;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::source::cache_dir::CacheDir;

    const MODULE: &[u8] = b"a module";

    fn sources(folder: &Path) -> Sources {
        let unreachable = Config::new("http://127.0.0.1:1".parse().unwrap());
        Sources {
            client: Client::try_from(unreachable).unwrap(),
            namespace: "default".to_owned(),
            guests_dir: folder.to_owned(),
            cache: Some(Arc::new(CacheDir::new(folder.to_owned(), 1 << 20))),
            registries: Arc::new(Semaphore::new(1)),
        }
    }

    fn source(is_signed: bool) -> ModuleSource {
        let mut module = json!({
            "digest": digest_of(MODULE).as_str(),
            "oci": {"reference": "r.io/a:1"},
        });
        if is_signed {
            module["oci"]["signature"] = json!({"keys": [{"pem": "a key"}]});
        }
        serde_json::from_value(module).unwrap()
    }

    #[tokio::test]
    async fn a_cached_module_that_must_be_signed_needs_a_key_that_verified_it() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        sources.store(&source(false), MODULE, None).await;
        assert!(sources.cached(&source(false), &[]).await.is_some());
        assert_eq!(sources.cached(&source(true), &["sha256:a"]).await, None);
        let signer = Some("sha256:a".to_owned());
        sources.store(&source(true), MODULE, signer).await;
        assert_eq!(sources.cached(&source(true), &["sha256:b"]).await, None);
        assert_eq!(sources.cached(&source(true), &[]).await, None);
        let cached = sources
            .cached(&source(true), &["sha256:b", "sha256:a"])
            .await;
        assert_eq!(cached.as_deref(), Some(MODULE));
        let path = sources.cache_path(&source(true)).unwrap();
        std::fs::write(path, b"another module").unwrap();
        assert_eq!(sources.cached(&source(true), &["sha256:a"]).await, None);
    }

    #[tokio::test]
    async fn an_unreferenced_module_is_deleted_with_its_markers() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        let signer = || Some("sha256:a".to_owned());
        sources.store(&source(true), MODULE, signer()).await;
        let mut other = source(true);
        other.digest = Some(digest_of(b"other").to_string());
        sources.store(&other, b"other", signer()).await;
        sources.prune(&[source(true)], &[]).await;
        assert_eq!(sources.cached(&other, &["sha256:a"]).await, None);
        assert!(sources.cached(&source(true), &["sha256:a"]).await.is_some());
        let files = std::fs::read_dir(folder.path().join("modules")).unwrap();
        assert_eq!(files.count(), 2, "the module and its marker");
    }
}
