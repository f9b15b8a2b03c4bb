//! Checks that the keys which signed a loaded module still count.

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::ModuleSource;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::preparation::{fetch, late};
use crate::module_store::{Failure, Signed};
use crate::source::{REGISTRIES, ReleaseKeys, SignatureFault, Sources, Trust};

/// Timeout of reading the keys. A removed key has no effect after a minute: the time until the
/// check, two reads with the time for an absent object between them, and the search for another
/// signature take less.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the search for another signature.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Most concurrent reads of keys. All checks begin together, and each policy can have keys of its
/// own.
const READS: usize = 16;

/// Most concurrent searches for another signature in registries, and as many in other sources. Each
/// can hold a module in memory for a moment, and a registry that does not answer delays few others.
const SEARCHES: usize = REGISTRIES;

/// Permits for searches, of all checks of a replica.
#[derive(Clone)]
pub(super) struct SearchPermits {
    remote: Arc<Semaphore>,
    local: Arc<Semaphore>,
}

impl Default for SearchPermits {
    fn default() -> Self {
        let permits = || Arc::new(Semaphore::new(SEARCHES));
        Self {
            remote: permits(),
            local: permits(),
        }
    }
}

/// The checks of all loaded modules that begin together.
pub(super) struct CheckBatch {
    begun: Instant,
    release: ReleaseKeys,
    reads: Semaphore,
    searches: SearchPermits,
}

impl CheckBatch {
    /// Checks that begin now.
    pub(super) fn new(searches: SearchPermits) -> Self {
        Self {
            begun: Instant::now(),
            release: ReleaseKeys::default(),
            reads: Semaphore::new(READS),
            searches,
        }
    }

    /// Checks that the keys which signed a loaded module still count. If they do not, the module
    /// needs another signature.
    pub(super) async fn check(
        &self,
        sources: &Sources,
        module: &ModuleSource,
        signed: Signed,
    ) -> Result<Signed, Failure> {
        let trust = self.trust(sources, module, &signed).await;
        let now = Instant::now();
        let digest = module.digest.as_deref();
        let field = match trust {
            Trust::Kept => return Ok(Signed::at(self.begun, signed.signers().clone())),
            Trust::Unknown(reason) => {
                tracing::warn!(digest, %reason, "the keys for the signature of a module cannot be read, and those that signed it count");
                return Ok(signed.unread(now));
            }
            Trust::Absent(field, reason) => match signed.absent(now) {
                Some(signed) => {
                    tracing::warn!(digest, %reason, "the keys for the signature of a module are absent, and count for a few seconds more");
                    return Ok(signed);
                }
                None => field,
            },
            Trust::Withdrawn(field) => field,
        };
        let found = self.search(sources, module).await;
        found.map_err(|failure| Failure {
            reason: format!(
                "the key that signed the loaded module is no longer in {field}: {}",
                failure.reason
            ),
            is_final: true,
            // The time for an absent object is over.
            signature: Some(SignatureFault::Unsigned),
            ..failure
        })
    }

    /// Reads the keys. The wait for other reads is no part of the timeout: the last of many checks
    /// must read them too.
    async fn trust(&self, sources: &Sources, module: &ModuleSource, signed: &Signed) -> Trust {
        let _permit = self.reads.acquire().await;
        let trust = sources.trust(module, signed.signers(), &self.release);
        let late = || Trust::Unknown("the API server gave no answer in time".to_owned());
        timeout(READ_TIMEOUT, trust)
            .await
            .unwrap_or_else(|_| late())
    }

    /// Searches for a signature by another key. The wait for other searches is a part of the
    /// timeout.
    async fn search(&self, sources: &Sources, module: &ModuleSource) -> Result<Signed, Failure> {
        let permits = match &module.oci {
            Some(_) => &self.searches.remote,
            None => &self.searches.local,
        };
        let search = async {
            let _permit = permits.acquire().await;
            fetch(sources, module, SEARCH_TIMEOUT).await
        };
        let found = timeout(SEARCH_TIMEOUT, search).await;
        let verified = found.unwrap_or_else(|_| Err(late(SEARCH_TIMEOUT)));
        verified.map(|verified| verified.signed)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use rcgen::KeyPair;
    use serde_json::json;

    use super::*;
    use crate::source::fixture::{World, key, module, signature};
    use ipu_oci::cosign::public_keys;

    /// A release whose one required key is in a ConfigMap, and a module that this key signed.
    struct Fixture {
        world: World,
        sources: Sources,
        signer: KeyPair,
    }

    impl Fixture {
        fn new() -> Self {
            let (world, signer) = (World::new(), key());
            let sources = world.sources(json!([{"configMap": {"name": "keys", "key": "pub"}}]));
            world.put_signed(&json!({"data": {"x.wasm.sig": signature(&signer)}}));
            let fixture = Self {
                world,
                sources,
                signer,
            };
            fixture.put(&fixture.signer);
            fixture
        }

        /// Creates the ConfigMap with this key, or replaces it.
        fn put(&self, key: &KeyPair) {
            let data = json!({"data": {"pub": key.public_key_pem()}});
            self.world.put("keys", &data);
        }

        fn delete(&self) {
            self.world.maps.lock().remove("keys");
        }

        async fn load(&self) -> Signed {
            let fetched = self.sources.fetch(&module()).await.unwrap();
            Signed::at(Instant::now(), fetched.signers())
        }

        /// Waits until the check is due.
        async fn check(&self, signed: Signed) -> Result<Signed, Failure> {
            let check_at = signed.check_at().unwrap();
            tokio::time::advance(check_at.saturating_duration_since(Instant::now())).await;
            let batch = CheckBatch::new(SearchPermits::default());
            batch.check(&self.sources, &module(), signed).await
        }
    }

    #[tokio::test]
    async fn few_of_many_checks_read_their_keys_at_once() {
        let fixture = Fixture::new();
        let keys = public_keys(fixture.signer.public_key_pem().as_bytes()).unwrap();
        let signers = [keys[0].fingerprint().to_owned()].into();
        let signed = Signed::at(Instant::now(), signers);
        let keys = json!([{"configMap": {"name": "keys", "key": "pub"}}]);
        let oci = json!({"reference": "r.io/a:1", "signature": {"keys": keys}});
        let module: ModuleSource = serde_json::from_value(json!({"oci": oci})).unwrap();
        let batch = CheckBatch::new(SearchPermits::default());
        let checks = (0..READS * 3).map(|_| batch.check(&fixture.sources, &module, signed.clone()));
        for checked in join_all(checks).await {
            assert_eq!(checked.unwrap().signers(), signed.signers());
        }
        assert_eq!(fixture.world.requests.most(), READS);
    }

    #[tokio::test]
    async fn few_of_many_modules_are_searched_at_once() {
        let fixture = Fixture::new();
        let loaded = fixture.load().await;
        fixture.world.forget_cached();
        let other = key();
        let data = json!({"data": {"x.wasm.sig": signature(&other)}});
        fixture.world.put_signed(&data);
        fixture.put(&other);
        let module = module();
        let batch = CheckBatch::new(SearchPermits::default());
        let checks = (0..READS).map(|_| batch.check(&fixture.sources, &module, loaded.clone()));
        for checked in join_all(checks).await {
            assert_ne!(checked.unwrap().signers(), loaded.signers());
        }
        assert_eq!(fixture.world.requests.most(), SEARCHES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_config_map_with_keys_that_is_replaced_stops_no_module() {
        let fixture = Fixture::new();
        let loaded = fixture.load().await;
        fixture.delete();
        let absent = fixture.check(loaded.clone()).await.unwrap();
        fixture.put(&fixture.signer);
        let kept = fixture.check(absent).await.unwrap();
        // The next absence has its full time again.
        assert_eq!(kept, Signed::at(Instant::now(), loaded.signers().clone()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_fails_stops_no_module() {
        let fixture = Fixture::new();
        let mut signed = fixture.load().await;
        *fixture.world.is_down.lock() = true;
        for _ in 0..5 {
            signed = fixture.check(signed).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_config_map_with_keys_stops_what_they_signed() {
        let fixture = Fixture::new();
        let loaded = fixture.load().await;
        fixture.delete();
        let deleted_at = Instant::now();
        let absent = fixture.check(loaded).await.unwrap();
        let failure = fixture.check(absent).await.unwrap_err();
        assert!(failure.is_final && failure.is_retryable);
        let reason = failure.reason;
        assert!(
            reason.contains("no longer in policies.requiredKeys"),
            "{reason}"
        );
        let slowest = deleted_at.elapsed() + READ_TIMEOUT * 2 + SEARCH_TIMEOUT;
        assert!(slowest < Duration::from_mins(1), "{slowest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_its_new_config_map_lacks_stops_at_once() {
        let fixture = Fixture::new();
        let loaded = fixture.load().await;
        fixture.delete();
        let absent = fixture.check(loaded).await.unwrap();
        fixture.put(&key());
        let failure = fixture.check(absent).await.unwrap_err();
        assert!(
            failure.reason.contains("no longer in"),
            "{}",
            failure.reason
        );
    }
}
