//! Keeps modules on disk that were fetched once, each under its digest, and who was seen to have signed
//! them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use ipu_api::ipupolicy::ModuleSource;
use ipu_guest_host::digest_of;

use super::Sources;
use super::folder::{self, Kept};

/// Numbers the files that are not whole yet: two versions of a policy may want the same module at once.
pub(super) static PARTS: AtomicU64 = AtomicU64::new(0);

impl Sources {
    /// A module that was fetched before, where it is still what it was, and, where it must be signed, was
    /// seen to be signed by the key of one of these fingerprints.
    pub(super) async fn kept(&self, wanted: &ModuleSource, keys: &[&str]) -> Option<Vec<u8>> {
        let path = self.kept_path(wanted)?;
        let mut is_signed = !must_be_signed(wanted);
        for key in keys {
            let mark = mark(&path, key);
            is_signed |= tokio::fs::try_exists(mark).await.unwrap_or(false);
        }
        if !is_signed {
            return None;
        }
        let bytes = tokio::fs::read(&path).await.ok()?;
        if Some(digest_of(&bytes).as_str()) != wanted.digest.as_deref() {
            return None;
        }
        folder::touch(path).await;
        Some(bytes)
    }

    /// Keeps a module for the next start, and the key that signed it. Without it that start has to ask
    /// the source.
    pub(super) async fn keep(&self, wanted: &ModuleSource, bytes: &[u8], signer: Option<String>) {
        let (Some(path), Some(folder)) = (self.kept_path(wanted), &self.folder) else {
            return;
        };
        let mut written = folder.write(path.clone(), bytes.to_vec()).await;
        if let (Ok(Kept::Yes), Some(signer)) = (&written, signer) {
            let marked = tokio::fs::write(mark(&path, &signer), []).await;
            written = marked.map(|()| Kept::Yes);
        }
        if let Ok(Kept::TooLarge) = written {
            let (path, bytes) = (path.display(), bytes.len());
            tracing::warn!(%path, bytes, "a module is too large to store for the next start, which fetches it again");
        }
        if let Err(error) = written {
            let path = path.display();
            tracing::warn!(%path, %error, "failed to store a module for the next start");
        }
    }

    /// Takes away the modules that no version of any policy names any more, with their marks. Those in
    /// force are kept longest where there is too little room.
    pub async fn prune(&self, wanted: &[ModuleSource], active: &[ModuleSource]) {
        let Some(folder) = &self.folder else {
            return;
        };
        let digest = |module: &ModuleSource| {
            let digest = module.digest.as_deref()?.strip_prefix("sha256:")?;
            Some(digest.to_owned())
        };
        let named: BTreeSet<String> = wanted.iter().filter_map(digest).collect();
        let active = active.iter().filter_map(digest).collect();
        folder.set_active(active).await;
        let Ok(mut files) = tokio::fs::read_dir(folder.modules()).await else {
            return;
        };
        while let Ok(Some(file)) = files.next_entry().await {
            let path = file.path();
            let digest = path.file_stem().and_then(|stem| stem.to_str());
            if digest.is_some_and(|digest| named.contains(digest)) {
                continue;
            }
            if let Err(error) = tokio::fs::remove_file(&path).await {
                let path = path.display();
                tracing::warn!(%path, %error, "failed to remove an unused module");
            }
        }
    }

    /// Makes room after a module was compiled.
    pub async fn trim(&self) {
        if let Some(folder) = &self.folder {
            folder.trim().await;
        }
    }

    fn kept_path(&self, wanted: &ModuleSource) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        // The image's files are as near as the folder.
        if wanted.image.is_some() {
            return None;
        }
        let digest = wanted.digest.as_ref()?.strip_prefix("sha256:")?;
        Some(folder.modules().join(format!("{digest}.wasm")))
    }
}

fn must_be_signed(wanted: &ModuleSource) -> bool {
    let place = wanted.oci.as_ref();
    place.is_some_and(|place| place.signature.is_some())
}

/// The file whose being there says that the key of this fingerprint signed the module.
fn mark(module: &Path, fingerprint: &str) -> PathBuf {
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
    use crate::source::folder::Folder;

    const MODULE: &[u8] = b"a module";

    fn sources(folder: &Path) -> Sources {
        let nobody = Config::new("http://127.0.0.1:1".parse().unwrap());
        Sources {
            client: Client::try_from(nobody).unwrap(),
            namespace: "default".to_owned(),
            guests_dir: folder.to_owned(),
            folder: Some(Arc::new(Folder::new(folder.to_owned(), 1 << 20))),
            registries: Arc::new(Semaphore::new(1)),
        }
    }

    fn wanted(is_signed: bool) -> ModuleSource {
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
    async fn a_kept_module_that_must_be_signed_counts_with_a_key_that_signed_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        sources.keep(&wanted(false), MODULE, None).await;
        assert!(sources.kept(&wanted(false), &[]).await.is_some());
        assert_eq!(sources.kept(&wanted(true), &["sha256:a"]).await, None);
        let signer = Some("sha256:a".to_owned());
        sources.keep(&wanted(true), MODULE, signer).await;
        assert_eq!(sources.kept(&wanted(true), &["sha256:b"]).await, None);
        assert_eq!(sources.kept(&wanted(true), &[]).await, None);
        let kept = sources.kept(&wanted(true), &["sha256:b", "sha256:a"]).await;
        assert_eq!(kept.as_deref(), Some(MODULE));
        let path = sources.kept_path(&wanted(true)).unwrap();
        std::fs::write(path, b"another module").unwrap();
        assert_eq!(sources.kept(&wanted(true), &["sha256:a"]).await, None);
    }

    #[tokio::test]
    async fn what_nobody_names_is_taken_away_with_its_marks() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        let signer = || Some("sha256:a".to_owned());
        sources.keep(&wanted(true), MODULE, signer()).await;
        let mut other = wanted(true);
        other.digest = Some(digest_of(b"other").to_string());
        sources.keep(&other, b"other", signer()).await;
        sources.prune(&[wanted(true)], &[]).await;
        assert_eq!(sources.kept(&other, &["sha256:a"]).await, None);
        assert!(sources.kept(&wanted(true), &["sha256:a"]).await.is_some());
        let files = std::fs::read_dir(folder.path().join("modules")).unwrap();
        assert_eq!(files.count(), 2, "the module and its mark");
    }
}
