//! `policy run`: one request, its answer, what the host makes of it, and what it took.

use std::io;
use std::path::PathBuf;

use clap::Args;
use ipu_guest_host::model::Slot;
use ipu_guest_host::question::Question;
use ipu_guest_host::{Asked, Limits, Meter, Trial};
use ipu_text::explain;
use serde_json::{Value, json};

use super::request::question;
use super::ruling::ruling;
use super::settings::settings;
use super::world::World;
use super::{PolicyCliError, no_answer, no_policy, write_json};

#[derive(Args, Clone, Debug)]
pub(super) struct RunArgs {
    /// The component, such as my-placement.wasm.
    file: PathBuf,
    /// File with the request, JSON or YAML: {operation, object, oldObject} or an AdmissionReview for
    /// defaulting and validation, {request, controllers, attempts} for placement. Without it, the
    /// request that the operator tries policies on.
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
    let slot = args.world.map(Slot::from);
    let open = |meter| {
        Trial::open(&args.file, slot, Limits::of_authors(), meter).map_err(no_policy(&args.file))
    };
    let trial = open(Meter::Time)?;
    let question = question(&trial, args.request.as_deref())?;
    let asked = trial.ask(&args.settings, &question);
    let fuel = match asked.answer {
        Ok(_) => {
            open(Meter::Fuel(u64::MAX))?
                .ask(&args.settings, &question)
                .fuel
        }
        Err(_) => None,
    };
    write_json(&report(&trial, &question, &asked, fuel), out)?;
    match asked.answer {
        Ok(_) => Ok(()),
        Err(source) => Err(no_answer(&args.file)(source)),
    }
}

fn report(trial: &Trial, question: &Question, asked: &Asked, fuel: Option<u64>) -> Value {
    let mut report = json!({
        "world": trial.slot(),
        "digest": trial.digest(),
        "host": ruling(question, &asked.answer),
        "used": {
            "microseconds": u64::try_from(asked.time.as_micros()).unwrap_or(u64::MAX),
            "memoryBytes": asked.memory,
            "fuel": fuel,
        },
    });
    match &asked.answer {
        Ok(answer) => report["answer"] = json!(answer),
        Err(error) => report["error"] = json!(explain(error)),
    }
    report
}
