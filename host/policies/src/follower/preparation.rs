//! Prepares one version: fetches, verifies, compiles and tests its module.

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::{Hook, Match, ModuleSource};
use ipu_runtime::panics;
use ipu_text::explain;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::load_permits::{LoadPermit, LoadPermits};
use crate::active_policies::ActivePolicies;
use crate::matcher::Matcher;
use crate::module_config::module_config;
use crate::module_store::{Failure, ParsedMatch, Ready, Signed};
use crate::report::DesiredVersion;
use crate::source::Sources;

/// Timeout of fetching a module.
const FETCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Parses `spec.match`, off the async threads.
pub(super) async fn parse(hook: Hook, spec: Option<Match>) -> ParsedMatch {
    let parse = move || panics::caught_now(|| Matcher::new(hook, spec.as_ref()));
    match spawn_blocking(parse)
        .await
        .map_err(panics::Panicked::from)
        .flatten()
    {
        Ok(Ok(matcher)) => Ok(Arc::new(matcher)),
        Ok(Err(error)) => Err(explain(&error)),
        Err(panicked) => Err(format!("failed to read spec.match: {panicked}")),
    }
}

/// Turns a panic into a failure, so that the version does not stay in preparation for ever.
pub(super) async fn catch_panic<T>(
    preparing: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let ended = panics::caught(preparing).await;
    ended.unwrap_or_else(|_| {
        Err(Failure {
            reason: "making it ready ended in a panic, which the operator's log reports; \
                     the operator tries again"
                .to_owned(),
            is_final: false,
            is_retryable: true,
            signature: None,
        })
    })
}

/// Fetches, checks, compiles and tests one version.
pub(super) async fn prepare(
    (policies, sources): (&ActivePolicies, &Sources),
    permits: &LoadPermits,
    matcher: ParsedMatch,
    desired: DesiredVersion,
) -> Result<Ready, Failure> {
    let spec = desired.spec;
    let matcher = matcher.map_err(|reason| Failure {
        reason,
        is_final: true,
        is_retryable: false,
        signature: None,
    })?;
    let loaded = load(sources, permits, &spec.module).await?;
    let prepared = policies
        .host()
        .prepare(spec.hook, loaded.component, module_config(&spec))
        .await;
    sources.trim().await;
    let guest = prepared.map_err(|error| Failure {
        is_final: !error.is_passing(),
        is_retryable: error.is_retryable(),
        reason: explain(&error),
        signature: None,
    })?;
    Ok(Ready {
        digest: guest.digest().map(ToString::to_string).unwrap_or_default(),
        guest,
        matcher,
        on_error: spec.on_error(),
        stats: Arc::default(),
        serving_since: None,
        signed: loaded.signed,
    })
}

/// A module with the permit to compile it.
struct Loaded {
    component: Vec<u8>,
    /// The keys that signed it. `None` if it needs no signature.
    signed: Option<Signed>,
    _permit: LoadPermit,
}

/// Fetches the module, and waits until it may be compiled.
async fn load(
    sources: &Sources,
    permits: &LoadPermits,
    module: &ModuleSource,
) -> Result<Loaded, Failure> {
    let is_remote = module.oci.is_some();
    let fetch = fetch(sources, module, FETCH_TIMEOUT);
    let (verified, permit) = permits.acquire(is_remote, fetch).await?;
    let signed = Some(verified.signed).filter(|_| sources.must_be_signed(module));
    Ok(Loaded {
        component: verified.component,
        signed,
        _permit: permit,
    })
}

/// A fetched module, and the keys that signed it.
pub(super) struct Verified {
    pub(super) component: Vec<u8>,
    pub(super) signed: Signed,
}

/// Fetches the module within a timeout. A refusal is retried too: someone can sign the module
/// later. The keys are read first, so one that is removed later is found by the next check.
pub(super) async fn fetch(
    sources: &Sources,
    module: &ModuleSource,
    within: Duration,
) -> Result<Verified, Failure> {
    let keys_read_at = Instant::now();
    let fetched = timeout(within, sources.fetch(module)).await;
    let fetched = fetched
        .map_err(|_| late(within))?
        .map_err(|error| Failure {
            reason: explain(&error),
            is_final: error.is_refusal(),
            is_retryable: true,
            signature: error.signature_fault(),
        })?;
    Ok(Verified {
        signed: Signed::at(keys_read_at, fetched.signers()),
        component: fetched.component,
    })
}

/// The failure of a source that gave no answer in time.
pub(super) fn late(within: Duration) -> Failure {
    Failure {
        reason: format!("its source gave no answer within {} s", within.as_secs()),
        is_final: false,
        is_retryable: true,
        signature: None,
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::digest::digest_of;
    use serde_json::json;
    use tokio::time::advance;

    use super::*;
    use crate::source::fixture::{MODULE, World, key, module, pem, signature};

    #[tokio::test]
    async fn a_panic_during_preparation_is_a_failure_that_is_retried() {
        let failure = catch_panic::<Ready>(async { panic!("a fault of ours") })
            .await
            .unwrap_err();
        assert!(!failure.is_final);
        assert!(failure.reason.contains("panic"), "{}", failure.reason);
    }

    #[tokio::test(start_paused = true)]
    async fn a_signature_counts_from_the_time_at_which_its_keys_were_read() {
        let (world, signer) = (World::new(), key());
        let sources = world.sources(json!([pem(&signer)]));
        world.put_signed(&json!({"data": {"x.wasm.sig": signature(&signer)}}));
        sources.fetch(&module()).await.unwrap();
        // The folder has the module of the registry already, and another one is being compiled.
        let remote =
            json!({"digest": digest_of(MODULE).as_str(), "oci": {"reference": "r.io/a:1"}});
        let remote = serde_json::from_value(remote).unwrap();
        let permits = LoadPermits::default();
        let other = permits.acquire(false, async { Ok::<_, Failure>(()) }).await;
        let compiling = async {
            advance(FETCH_TIMEOUT / 2).await;
            drop(other);
        };
        let begun = Instant::now();
        let (loaded, ()) = futures::join!(load(&sources, &permits, &remote), compiling);
        let signed = loaded.unwrap().signed.unwrap();
        assert_eq!(signed, Signed::at(begun, signed.signers().clone()));
    }
}
