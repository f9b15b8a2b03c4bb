//! Checks that the keys which signed a loaded module still count.

use std::time::Duration;

use ipu_api::ipupolicy::ModuleSource;
use tokio::time::{Instant, timeout};

use super::preparation::fetch;
use crate::module_store::{Failure, Signed};
use crate::source::{ReleaseKeys, SignatureFault, Sources, Trust};

/// Timeout of reading the keys. A removed key has no effect after a minute: the time until the check, two reads with the
/// time for an absent object between them, and the search for another signature take less.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the search for another signature.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks that the keys which signed a loaded module still count. If they do not, the module needs another signature.
pub(super) async fn check(
    sources: &Sources,
    module: &ModuleSource,
    signed: Signed,
    release: &ReleaseKeys,
) -> Result<Signed, Failure> {
    let begun = Instant::now();
    let trust = sources.trust(module, signed.signers(), release);
    let trust = timeout(READ_TIMEOUT, trust).await;
    let late = || Trust::Unknown("the API server gave no answer in time".to_owned());
    let now = Instant::now();
    let digest = module.digest.as_deref();
    let field = match trust.unwrap_or_else(|_| late()) {
        Trust::Kept => return Ok(Signed::at(begun, signed.signers().clone())),
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
    let found = fetch(sources, module, SEARCH_TIMEOUT).await;
    found
        .map(|verified| verified.signed)
        .map_err(|failure| Failure {
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

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use serde_json::json;

    use super::*;
    use crate::source::fixture::{World, key, module, signature};

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
            check(&self.sources, &module(), signed, &ReleaseKeys::default()).await
        }
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
