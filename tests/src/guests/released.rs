//! The guests of the previous release, as its archive contains them, and IPUPolicies with fields
//! that this release has.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::describe;
use release::package::previous::Previous;
use serde_json::{Value, json};

/// The ConfigMap of the modules. Each key is the name of a hook.
pub const MODULES: &str = "released";

/// The part of the message about a job of 16 IPUs: only the settings of the validation policy have
/// this limit.
pub const REFUSED: &str = "\"16\" is more than the 8 IPUs that one job instance may have here";

/// The policies: name, hook, and the interface that its guest exports.
const POLICIES: [(&str, Hook, &str); 3] = [
    ("old-defaulting", Hook::Defaulting, "defaulter"),
    ("old-validation", Hook::Validation, "validator"),
    ("old-placement", Hook::Placement, "placer"),
];

/// A guest of the archive.
#[derive(Clone, Debug)]
pub struct Released {
    /// Name of its IPUPolicy.
    pub policy: &'static str,
    /// Its hook.
    pub hook: Hook,
    /// Digest of its module.
    pub digest: String,
    /// Its module.
    pub file: PathBuf,
}

/// Returns the guest of each hook: defaulting, validation and placement.
pub fn guests(checkout: &Path) -> Result<[Released; 3]> {
    let blobs = Previous::locked(checkout)?.texts(checkout);
    let blobs = fs::read_dir(blobs.join("guests/blobs/sha256"))?;
    let guests = blobs.map(|blob| guest(blob?.path()));
    let mut guests = guests.collect::<Result<Vec<_>>>()?;
    guests.sort_by_key(|found| POLICIES.iter().position(|(name, ..)| *name == found.policy));
    let names = guests.iter().map(|found| found.policy);
    ensure!(
        names.eq(POLICIES.map(|(name, ..)| name)),
        "the archive has other guests than one for each hook: {guests:?}"
    );
    guests.try_into().ok().context("there is one for each hook")
}

fn guest(file: PathBuf) -> Result<Released> {
    let found = describe(&file)?;
    let exports = found.capabilities.exports;
    let is_of = |interface: &str| {
        let name = format!("ipu:policy/{interface}@");
        exports.iter().any(|export| export.name.starts_with(&name))
    };
    let mut policies = POLICIES.iter();
    let policy = policies.find(|(_, _, interface)| is_of(interface));
    let (policy, hook, _) = policy.context("a guest exports one of the interfaces")?;
    Ok(Released {
        policy,
        hook: *hook,
        digest: found.digest.to_string(),
        file,
    })
}

impl Released {
    /// The name of its hook, and the key of its module.
    pub fn key(&self) -> String {
        format!("{:?}", self.hook)
    }

    /// The spec of its policy.
    pub fn spec(&self) -> Value {
        let key = self.key();
        let module = json!({"configMap": {"name": MODULES, "key": key}, "digest": self.digest});
        let mut spec = json!({"hook": key, "module": module});
        match self.hook {
            // The built-in guest sets the same defaults.
            Hook::Defaulting => spec["replaces"] = json!("built-in"),
            Hook::Validation => spec["settings"] = json!({"maxIpusPerJob": 8}),
            Hook::Placement => {}
        }
        spec
    }
}
