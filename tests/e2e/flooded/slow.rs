//! A policy in force that is slow where an object is large, as those of the load are.

use ipu_operator::wasm::digest_of;
use libtest_mimic::Failed;
use serde_json::json;
use tests::guests::hostile;
use tests::lab::operator::NAMESPACE;

use crate::policies;
use crate::scene::Scene;

/// Name of the policy, and of the ConfigMap with its module.
const NAME: &str = "flood-slow";

/// Counts down from sixty millions at an address that nothing else uses: some tenth of a second where nobody else
/// wants the core.
const COUNTS: &str = "(i32.store (i32.const 8) (i32.const 60000000))
    (loop $next
      (i32.store (i32.const 8) (i32.sub (i32.load (i32.const 8)) (i32.const 1)))
      (br_if $next (i32.load (i32.const 8))))";

/// Puts it in force.
pub(super) async fn apply(scene: &Scene) -> Result<(), Failed> {
    let module = hostile::validation(COUNTS);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("slow.wasm");
    std::fs::write(&file, &module)?;
    let from_file = format!("--from-file=slow.wasm={}", file.display());
    let create = ["create", "configmap", NAME, "--namespace", NAMESPACE];
    scene
        .kubectl(&[create.as_slice(), &[&from_file]].concat())
        .await?;
    let spec = json!({
        "hook": "Validation",
        "module": {
            "configMap": {"name": NAME, "key": "slow.wasm"},
            "digest": digest_of(&module).to_string(),
        },
        // The machine is busy: what is shown is who waits for whom.
        "limits": {"deadlineMilliseconds": 5_000},
    });
    policies::apply(scene, NAME, spec).await?;
    policies::once_active(scene, NAME).await?;
    Ok(())
}

/// It is still in force, whatever strangers have asked it. Then it goes.
pub(super) async fn is_in_force_and_goes(scene: &Scene) -> Result<(), Failed> {
    let policy = policies::once_active(scene, NAME).await?;
    println!("{NAME}: {:?}", policy.status.unwrap_or_default().calls);
    scene.kubectl(&["delete", "ipupolicy", NAME]).await?;
    let delete = ["delete", "configmap", NAME, "--namespace", NAMESPACE];
    scene.kubectl(&delete).await?;
    Ok(())
}
