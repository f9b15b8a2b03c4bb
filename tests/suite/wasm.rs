//! Policies as real components: the same answers as the native code, limits that hold, and
//! replacements without failed calls.

mod conditions;
pub(crate) mod examples;
mod limits;
mod native;
mod neighbours;
mod networks;
mod refused;
mod shadow;
mod swap;
mod texts;
mod wasi;
mod what_if;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ipu_api::guest::admission::{Admission, Operation};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{GuestHost, GuestHostOptions};
use serde_json::json;

/// The folder of the built guests.
pub(crate) fn guests() -> &'static Path {
    static GUESTS: OnceLock<PathBuf> = OnceLock::new();
    GUESTS.get_or_init(|| release::guests::build().expect("the guests can be built"))
}

/// The creation of an object, without further data.
pub(crate) fn create() -> Admission {
    Admission::of(Operation::Create)
}

pub(crate) fn options(hooks: &[Hook]) -> GuestHostOptions {
    GuestHostOptions {
        guests_dir: guests().to_owned(),
        settings: json!({ "maxIpusPerJob": 64 }),
        hooks: hooks.to_vec(),
        ..GuestHostOptions::default()
    }
}

pub(crate) async fn open(options: GuestHostOptions) -> GuestHost {
    GuestHost::open(options).await.expect("the policies load")
}
