//! The cache of fetched modules on disk, by digest, with the keys that verified their signatures.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ipu_api::ipupolicy::ModuleSource;
use ipu_guest_host::digest_of;

use super::cache_dir::{self, Written};
use super::keys::{KeyList, Signers};
use super::{Fetched, Sources};

impl Sources {
    /// Returns a module from the cache if its digest is right, and a key of each list verified its signature before.
    pub(super) async fn cached(&self, source: &ModuleSource, lists: &[KeyList]) -> Option<Fetched> {
        let path = self.cache_path(source)?;
        let mut signers = Signers::new();
        for list in lists {
            let marked = marked_signers(&path, list).await;
            if marked.is_empty() {
                return None;
            }
            signers.extend(marked);
        }
        let component = tokio::fs::read(&path).await.ok()?;
        if Some(digest_of(&component).as_str()) != source.digest.as_deref() {
            return None;
        }
        cache_dir::touch(path).await;
        Some(Fetched { component, signers })
    }

    /// Stores a module, and the keys that signed it. Failures are only logged: the next start fetches the module again.
    pub(super) async fn store(&self, source: &ModuleSource, fetched: &Fetched) {
        let (Some(path), Some(cache)) = (self.cache_path(source), &self.cache) else {
            return;
        };
        let bytes = &fetched.component;
        let mut written = cache.write(path.clone(), bytes.clone()).await;
        for signer in &fetched.signers {
            if let Ok(Written::Stored) = written {
                let marked = tokio::fs::write(signature_marker(&path, signer), []).await;
                written = marked.map(|()| Written::Stored);
            }
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

/// Returns the keys of a list that verified a signature of the module before.
async fn marked_signers(module: &Path, list: &KeyList) -> Vec<String> {
    let mut signers = Vec::new();
    for key in list.keys() {
        let marker = signature_marker(module, key.fingerprint());
        if tokio::fs::try_exists(marker).await.unwrap_or(false) {
            signers.push(key.fingerprint().to_owned());
        }
    }
    signers
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
    use crate::oci::cosign::public_keys;
    use crate::source::cache_dir::CacheDir;

    const MODULE: &[u8] = b"a module";
    const COSIGN: &str = include_str!("../oci/cosign/samples/cosign.pub");
    const RSA: &str = include_str!("../oci/cosign/samples/rsa.pub");

    fn sources(folder: &Path) -> Sources {
        let unreachable = Config::new("http://127.0.0.1:1".parse().unwrap());
        Sources {
            client: Client::try_from(unreachable).unwrap(),
            namespace: "default".to_owned(),
            guests_dir: folder.to_owned(),
            cache: Some(Arc::new(CacheDir::new(folder.to_owned(), 1 << 20))),
            required_keys: Vec::new(),
            registries: Arc::new(Semaphore::new(1)),
        }
    }

    fn fingerprint(key: &str) -> String {
        public_keys(key.as_bytes()).unwrap()[0]
            .fingerprint()
            .to_owned()
    }

    fn source(keys: Option<&str>) -> ModuleSource {
        let mut module = json!({
            "digest": digest_of(MODULE).as_str(),
            "oci": {"reference": "r.io/a:1"},
        });
        if let Some(keys) = keys {
            module["oci"]["signature"] = json!({"keys": [{"pem": keys}]});
        }
        serde_json::from_value(module).unwrap()
    }

    async fn cached(sources: &Sources, source: &ModuleSource) -> Option<Vec<u8>> {
        let lists = sources.key_lists(source).await;
        let cached = sources.cached(source, &lists).await;
        cached.map(|cached| cached.component)
    }

    fn fetched(component: &[u8], signer: Option<&str>) -> Fetched {
        Fetched {
            component: component.to_owned(),
            signers: signer.map(str::to_owned).into_iter().collect(),
        }
    }

    #[tokio::test]
    async fn a_cached_module_that_must_be_signed_needs_a_key_that_verified_it() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        sources.store(&source(None), &fetched(MODULE, None)).await;
        assert!(cached(&sources, &source(None)).await.is_some());
        assert_eq!(cached(&sources, &source(Some(COSIGN))).await, None);
        let signed = fetched(MODULE, Some(&fingerprint(COSIGN)));
        sources.store(&source(Some(COSIGN)), &signed).await;
        assert_eq!(cached(&sources, &source(Some(RSA))).await, None);
        assert_eq!(cached(&sources, &source(Some("no key"))).await, None);
        let both = source(Some(&format!("{RSA}{COSIGN}")));
        assert_eq!(cached(&sources, &both).await.as_deref(), Some(MODULE));
        let path = sources.cache_path(&both).unwrap();
        std::fs::write(path, b"another module").unwrap();
        assert_eq!(cached(&sources, &both).await, None);
    }

    #[tokio::test]
    async fn an_unreferenced_module_is_deleted_with_its_markers() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        let (kept, signer) = (source(Some(COSIGN)), fingerprint(COSIGN));
        sources.store(&kept, &fetched(MODULE, Some(&signer))).await;
        let mut other = kept.clone();
        other.digest = Some(digest_of(b"other").to_string());
        let stored = fetched(b"other", Some(&signer));
        sources.store(&other, &stored).await;
        sources.prune(std::slice::from_ref(&kept), &[]).await;
        assert_eq!(cached(&sources, &other).await, None);
        assert!(cached(&sources, &kept).await.is_some());
        let files = std::fs::read_dir(folder.path().join("modules")).unwrap();
        assert_eq!(files.count(), 2, "the module and its marker");
    }
}
