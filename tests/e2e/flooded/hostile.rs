//! Active policies beside the load: one is slow, others give harmful answers, and one repeatedly
//! fails its check.

use std::cell::Cell;
use std::convert::Infallible;

use harness::operator::NAMESPACE;
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::PolicyPhase;
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tests::guests::hostile;

use crate::fixture::Fixture;
use crate::policies;

/// Counts down from sixty million in unused memory: about a tenth of a second on an idle core.
const COUNTS: &str = "(i32.store (i32.const 8) (i32.const 60000000))
    (loop $next
      (i32.store (i32.const 8) (i32.sub (i32.load (i32.const 8)) (i32.const 1)))
      (br_if $next (i32.load (i32.const 8))))";

/// Elements of an answer, seven bytes each: just under 4 MiB, the size limit of an answer.
const OBJECTS: u32 = 599_000;

/// Size of the text of a refusal, in bytes.
const WORDS: u32 = 3 << 20;

/// Number of entries of a wait, none of which names a controller.
const ENTRIES: u32 = 170_000;

/// Name of the policy that fails its check.
const REFUSED: &str = "flood-refused";

/// The hostile policies.
pub(super) struct Hostile<'a> {
    fixture: &'a Fixture,
    /// The digest of the module that fails its check.
    refused: String,
    /// Number of its refusals.
    refusals: Cell<u32>,
}

impl<'a> Hostile<'a> {
    /// Returns the state without policies.
    pub(super) fn new(fixture: &'a Fixture) -> Self {
        Self {
            fixture,
            refused: String::new(),
            refusals: Cell::default(),
        }
    }

    /// Activates the slow policy.
    pub(super) async fn apply_slow(&self) -> Result<(), Failed> {
        let [slow, ..] = active_policies();
        self.put(slow).await
    }

    /// Activates the others, except the one that fails its check.
    pub(super) async fn apply_all(&mut self) -> Result<(), Failed> {
        let [_, others @ ..] = active_policies();
        for other in others {
            self.put(other).await?;
        }
        let always = hostile::always(&hostile::many_objects(OBJECTS));
        self.refused = store_module(self.fixture, REFUSED, &hostile::defaulting(&always)).await?;
        Ok(())
    }

    async fn put(&self, (name, module, spec): ActivePolicy) -> Result<(), Failed> {
        let digest = store_module(self.fixture, name, &module).await?;
        policies::apply(self.fixture, name, with_module(spec, name, &digest)).await?;
        policies::once_active(self.fixture, name).await?;
        Ok(())
    }

    /// Makes the operator check the failing policy repeatedly, until this is dropped.
    pub(super) async fn reload(&self) -> Result<Infallible, Failed> {
        loop {
            let settings = json!({"attempt": self.refusals.get()});
            let spec = json!({"hook": "Defaulting", "settings": settings});
            let spec = with_module(spec, REFUSED, &self.refused);
            policies::apply(self.fixture, REFUSED, spec).await?;
            let found = policies::once_in(self.fixture, REFUSED, PolicyPhase::Refused).await?;
            let message = found.status.unwrap_or_default().message;
            assert!(message.contains("so many members"), "{message}");
            self.refusals.set(self.refusals.get() + 1);
        }
    }

    /// Checks that they are still active regardless of the load, except the one that never was, and
    /// that each was called. The load also counts reviews from before their activation.
    pub(super) async fn are_active(&self) -> Result<(), Failed> {
        assert!(self.refusals.get() > 0, "{REFUSED} was never checked");
        println!("{REFUSED}: refused {} times", self.refusals.get());
        for (name, _, _) in active_policies() {
            policies::once_active(self.fixture, name).await?;
            let calls = policies::once_called(self.fixture, name, |calls| match name {
                // None of these policies gives a valid answer. Queries of the load do not count for
                // the placement policy.
                "flood-objects" | "flood-waits" => calls.failed > 0,
                _ => calls.answered + calls.failed > 0,
            });
            println!("{name}: {:?}", calls.await?);
        }
        Ok(())
    }

    /// Deletes all of them.
    pub(super) async fn delete(fixture: &Fixture) -> Result<(), Failed> {
        let names = active_policies().map(|(name, _, _)| name);
        let names = [names.as_slice(), &[REFUSED]].concat();
        let policies = ["delete", "ipupolicy", "--ignore-not-found"];
        let maps = ["delete", "configmap", "--ignore-not-found"];
        let maps = [maps.as_slice(), &["--namespace", NAMESPACE]].concat();
        for delete in [policies.as_slice(), &maps] {
            fixture.kubectl(&[delete, &names].concat()).await?;
        }
        Ok(())
    }
}

/// Name, module, and the rest of `spec`.
type ActivePolicy = (&'static str, Vec<u8>, Value);

/// The policies that can be active, the slow one first. A large object, as the load sends it,
/// triggers their harmful behaviour. The placement policy is always harmful.
fn active_policies() -> [ActivePolicy; 4] {
    [
        (
            "flood-slow",
            hostile::validation(COUNTS),
            // The machine is busy, and the test concerns the order of waiting, not the duration.
            json!({"hook": "Validation", "limits": {"deadlineMilliseconds": 5_000}}),
        ),
        (
            "flood-objects",
            hostile::defaulting(&hostile::many_objects(OBJECTS)),
            // The chain must call the next policy, too.
            json!({"hook": "Defaulting", "order": 10, "onError": "Ignore"}),
        ),
        (
            "flood-words",
            hostile::defaulting(&hostile::refuse_with(WORDS)),
            json!({"hook": "Defaulting", "order": 20}),
        ),
        (
            "flood-waits",
            hostile::waiting(ENTRIES),
            json!({"hook": "Placement"}),
        ),
    ]
}

fn with_module(mut spec: Value, name: &str, digest: &str) -> Value {
    spec["module"] = json!({
        "configMap": {"name": name, "key": "policy.wasm"}, "digest": digest,
    });
    spec
}

/// Creates a ConfigMap with a module. Returns the module's digest.
async fn store_module(fixture: &Fixture, name: &str, module: &[u8]) -> Result<String, Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("policy.wasm");
    std::fs::write(&file, module)?;
    let from_file = format!("--from-file={}", file.display());
    let create = ["create", "configmap", name, "--namespace", NAMESPACE];
    fixture
        .kubectl(&[create.as_slice(), &[&from_file]].concat())
        .await?;
    Ok(digest_of(module).to_string())
}
