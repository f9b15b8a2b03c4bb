//! The provenance of a release: which sources and which compiler it was built from, as SLSA
//! describes it.

use std::env;
use std::path::Path;
use std::process::Command;

use cluster::command;
use cluster::files::{FileError, sha256};
use cluster::platform::Platform;
use serde_json::{Value, json};

use super::VERSION;

/// The file of the predicate, beside the archive. A statement about the archive or an artefact
/// contains it.
pub const NAME: &str = "provenance.json";

/// The type of the predicate for cosign.
pub const TYPE: &str = "slsaprovenance1";

/// The kind of build. A URN, because the repository has no public address.
const BUILD_TYPE: &str = "urn:ipu-operator:make-release";

/// The variable by which a publisher names the machine or the service that builds.
const BUILDER: &str = "IPU_OPERATOR_BUILDER_ID";

/// The predicate of this checkout. The same commit, compiler and builder give the same bytes.
pub fn predicate(checkout: &Path, platforms: &[Platform]) -> Result<Vec<u8>, FileError> {
    let sources = ["Cargo.lock", "tests/tools/wasm-rustc.lock", "Dockerfile"];
    let mut dependencies = Vec::new();
    if let Some(commit) = commit(checkout) {
        dependencies.push(json!({"name": "ipu-operator", "digest": {"gitCommit": commit}}));
    }
    for name in sources {
        let digest = sha256(&checkout.join(name))?;
        dependencies.push(json!({"name": name, "digest": {"sha256": digest}}));
    }
    let builder = env::var(BUILDER).unwrap_or_else(|_| BUILD_TYPE.to_owned());
    let platforms: Vec<_> = platforms
        .iter()
        .map(|platform| format!("linux/{}", platform.architecture))
        .collect();
    let predicate = json!({
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"version": VERSION, "platforms": platforms},
            "internalParameters": {"rustc": compiler()},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {"builder": {"id": builder}},
    });
    Ok(format!("{predicate:#}\n").into_bytes())
}

/// The commit. `None`: the checkout is a copy, not a clone.
fn commit(checkout: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(checkout);
    let commit = command::output(&mut git).ok()?;
    Some(commit.trim().to_owned())
}

fn compiler() -> Value {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = command::output(Command::new(rustc).arg("--version"));
    version.map_or(Value::Null, |version| version.trim().into())
}
