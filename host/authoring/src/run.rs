//! `policy run`: calls a component with one request, and prints the answer, the verdict of the
//! host, and the cost.

use std::io;
use std::path::PathBuf;

use clap::Args;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::policy_request::PolicyRequest;
use ipu_guest_host::{Budget, CallResult, Limits, OfflineGuest};
use ipu_text::explain;
use serde_json::{Value, json};

use super::host_verdict::{HostVerdict, host_verdict};
use super::request::read_request;
use super::settings::settings;
use super::world::World;
use super::{PolicyCliError, no_answer, no_policy, write_json};

#[derive(Args, Clone, Debug)]
pub(super) struct RunArgs {
    /// The component, such as my-placement.wasm.
    file: PathBuf,
    /// File with the request, JSON or YAML: {operation, object, oldObject} or an AdmissionReview
    /// for defaulting and validation, {request, controllers, attempts} for placement. Without it,
    /// the sample request of `policy check`.
    #[arg(long)]
    request: Option<PathBuf>,
    /// The world that it should implement; by default the one that its exports show.
    #[arg(long)]
    world: Option<World>,
    /// Settings, as a JSON object.
    #[arg(long, default_value = "{}", value_parser = settings)]
    settings: String,
}

pub(super) fn run(args: &RunArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let hook = args.world.map(Hook::from);
    let open = |budget| {
        OfflineGuest::open(&args.file, hook, Limits::for_authoring(), budget)
            .map_err(no_policy(&args.file))
    };
    let guest = open(Budget::Time)?;
    let request = read_request(&guest, args.request.as_deref())?;
    let result = guest.call(&args.settings, &request);
    let fuel = match result.answer {
        Ok(_) => {
            open(Budget::Fuel(u64::MAX))?
                .call(&args.settings, &request)
                .fuel
        }
        Err(_) => None,
    };
    let ask = |request: &PolicyRequest| guest.call(&args.settings, request).answer;
    let verdict = host_verdict(&request, &result.answer, ask);
    write_json(&report(&guest, &verdict, &result, fuel), out)?;
    match result.answer {
        Ok(_) => Ok(()),
        Err(source) => Err(no_answer(&args.file)(source)),
    }
}

fn report(
    guest: &OfflineGuest,
    verdict: &HostVerdict,
    result: &CallResult,
    fuel: Option<u64>,
) -> Value {
    let mut report = json!({
        "world": guest.hook().world(),
        "digest": guest.digest(),
        "host": verdict,
        "used": {
            "microseconds": u64::try_from(result.time.as_micros()).unwrap_or(u64::MAX),
            "memoryBytes": result.memory,
            "fuel": fuel,
        },
    });
    match &result.answer {
        Ok(answer) => report["answer"] = json!(answer),
        Err(error) => report["error"] = json!(explain(error)),
    }
    report
}
