//! Measures the fuel of calls of each guest, and the time to compile each.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipu_guest_host::model::Hook;
use ipu_guest_host::policy_request::{PolicyRequest, Review};
use ipu_guest_host::{Budget, Limits, LoadError, OfflineGuest};
use release::guests;
use serde_json::Value;

use super::{PolicyLoadError, creating, read};
use crate::languages;

const RULES: &str = include_str!("../../../guests/validation/src/rules/cases.json");

/// Fuel of the calls of one guest, in ascending order.
#[derive(Clone, Debug)]
pub struct Fuel {
    /// Name of the guest.
    pub guest: String,
    /// Number of calls.
    pub calls: usize,
    /// The minimum.
    pub least: u64,
    /// The median.
    pub median: u64,
    /// The maximum.
    pub most: u64,
}

/// The time to compile a module.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Its language.
    pub language: &'static str,
    /// Its size, in bytes.
    pub bytes: usize,
    /// To compile it, on all cores.
    pub took: Duration,
}

/// Returns the fuel of the guests of admission for the objects in the table of the validation
/// rules.
pub fn fuel() -> Result<Vec<Fuel>, PolicyLoadError> {
    let built = guests::build()?;
    let mut all = Vec::new();
    for file in ["defaulting.wasm", "validation.wasm"] {
        let guest = open(&built.join(file), Budget::Fuel(u64::MAX))?;
        let call = guest.caller("{}").map_err(LoadError::Settings)?;
        let mut taken: Vec<u64> = objects()?
            .into_iter()
            .filter_map(|object| call(&policy_request(guest.hook(), object)).fuel)
            .collect();
        taken.sort_unstable();
        let at = |part: usize| taken.get(part).copied().unwrap_or_default();
        all.push(Fuel {
            guest: file.to_owned(),
            calls: taken.len(),
            least: at(0),
            median: at(taken.len() / 2),
            most: at(taken.len().saturating_sub(1)),
        });
    }
    Ok(all)
}

fn objects() -> Result<Vec<Value>, PolicyLoadError> {
    let wrong = |error: serde_json::Error| PolicyLoadError::Wrong(error.to_string());
    let table: Value = serde_json::from_str(RULES).map_err(wrong)?;
    let cases = table["cases"].as_array().cloned().unwrap_or_default();
    let merged = cases.iter().map(|case| {
        let mut object = table["valid"].clone();
        json_patch::merge(&mut object, &case["change"]);
        object
    });
    Ok(merged.collect())
}

fn policy_request(hook: Hook, object: Value) -> PolicyRequest {
    let review = Review::of(creating(), object, None);
    match hook {
        Hook::Defaulting => PolicyRequest::Defaulting(review),
        Hook::Validation | Hook::Placement => PolicyRequest::Validation(review),
    }
}

/// Returns the time to compile one guest of each language, outside of the request path.
pub fn compiled() -> Result<Vec<Compiled>, PolicyLoadError> {
    let files: [(&str, PathBuf); 4] = [
        ("Rust", guests::build_examples()?.join("best-fit.wasm")),
        ("C", languages::c()?),
        ("JavaScript", languages::javascript()?),
        ("Python", languages::python()?),
    ];
    let mut all = Vec::new();
    for (language, file) in files {
        let bytes = read(Path::new(""), &file.to_string_lossy())?.len();
        let begun = Instant::now();
        open(&file, Budget::Time)?;
        all.push(Compiled {
            language,
            bytes,
            took: begun.elapsed(),
        });
    }
    Ok(all)
}

fn open(file: &Path, budget: Budget) -> Result<OfflineGuest, PolicyLoadError> {
    OfflineGuest::open(file, None, Limits::default(), budget).map_err(|source| {
        PolicyLoadError::Try {
            file: file.to_owned(),
            source,
        }
    })
}
