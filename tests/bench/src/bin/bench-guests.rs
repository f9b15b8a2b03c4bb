//! Measures the cost of WebAssembly: a call of a guest in a new instance, compared with the same
//! code run natively, and the time from the bytes of a new module to its first answer.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ipu_api::guest::admission::{Admission, Operation};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{BUILT_IN, GuestHost, GuestHostOptions, ModuleConfig};
use release::guests;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Calls of each kind that are measured. The median of their times counts.
const CALLS: usize = 5_001;

/// Calls of each kind before these, which bring code and memory into the caches.
const FIRST_CALLS: usize = 200;

/// New modules that are measured.
const MODULES: u8 = 21;

/// A job as users write it: a launcher, and a template with a volume and a few variables.
fn job() -> Value {
    let env: Vec<_> = (0..12)
        .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "a value of some length"}))
        .collect();
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": "mnist", "namespace": "default"},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "8",
            "workersPerJobInstance": "2",
            "launcher": {"command": ["mpirun", "python3", "train.py"]},
            "cleanPodPolicy": "None",
            "restartPolicy": {"type": "Never", "backOffLimit": 3},
            "workers": {"template": {
                "metadata": {"labels": {"app": "mnist"}},
                "spec": {
                    "containers": [{"name": "worker", "image": "mnist:1", "env": env,
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
                    "volumes": [{"name": "data", "emptyDir": {}}],
                },
            }},
        },
    })
}

fn main() -> anyhow::Result<()> {
    let runtime = Runtime::new().context("failed to start the asynchronous runtime")?;
    let guests = guests::build()?;
    measure_calls(&runtime, &guests)?;
    measure_new_modules(&runtime, &guests)
}

fn options(guests: &Path, hooks: &[Hook]) -> GuestHostOptions {
    GuestHostOptions {
        guests_dir: guests.to_owned(),
        hooks: hooks.to_vec(),
        ..GuestHostOptions::default()
    }
}

/// Measures calls of both guests of admission. Guest and native code begin and end with a JSON
/// value, as the webhook does.
fn measure_calls(runtime: &Runtime, guests: &Path) -> anyhow::Result<()> {
    let hooks = [Hook::Defaulting, Hook::Validation];
    let host = GuestHost::open_blocking(&options(guests, &hooks))?;
    let (job, admission) = (Arc::new(job()), Admission::of(Operation::Create));
    let default = |job: &Value| {
        let object = serde_json::from_str(&job.to_string()).expect("JSON");
        let defaulted = guest_defaulting::defaults::apply(object).expect("a job");
        serde_json::from_str::<Value>(&defaulted.object.to_string())
    };
    compare("defaulting", runtime, &job, default, || {
        let call = host.default_object(&BUILT_IN, &admission, black_box(&job), None);
        runtime.block_on(call).expect("an answer")
    });
    let check = |job: &Value| {
        let object = serde_json::from_str(&job.to_string()).expect("JSON");
        let settings = guest_validation::rules::Settings::default();
        guest_validation::rules::check(&object, None, settings)
    };
    compare("validation", runtime, &job, check, || {
        let call = host.validate(&BUILT_IN, &admission, black_box(&job), None);
        runtime.block_on(call).expect("an answer")
    });
    Ok(())
}

/// Compares a guest with the same code run natively. Native code runs twice: in the calling thread,
/// and off the async threads, where guests always run. The difference between the latter and the
/// guest is the cost of WebAssembly. The rest is the cost of threads. The three alternate, so that
/// other work of the machine affects all of them.
fn compare<T: Send + 'static, A>(
    guest: &str,
    runtime: &Runtime,
    job: &Arc<Value>,
    decide: fn(&Value) -> T,
    ask: impl Fn() -> A,
) {
    let off_the_async_threads = || {
        let job = Arc::clone(job);
        let decided = runtime.spawn_blocking(move || decide(black_box(&job)));
        runtime.block_on(decided).expect("an answer")
    };
    let [mut native, mut off, mut asked] = [const { Vec::new() }; 3];
    for call in 0..FIRST_CALLS + CALLS {
        let times = [
            timed(|| decide(black_box(job))),
            timed(off_the_async_threads),
            timed(&ask),
        ];
        if call >= FIRST_CALLS {
            native.push(times[0]);
            off.push(times[1]);
            asked.push(times[2]);
        }
    }
    let [native, off, asked] = [native, off, asked].map(median);
    println!(
        "{guest}: {:.1} µs native, {:.1} µs native off the async threads, {:.1} µs in the guest: {:.1} times the latter",
        microseconds(native),
        microseconds(off),
        microseconds(asked),
        asked.as_secs_f64() / off.as_secs_f64()
    );
}

/// Measures from the bytes of a module that the host has never loaded to its first answer.
fn measure_new_modules(runtime: &Runtime, guests: &Path) -> anyhow::Result<()> {
    let module = guests.join("validation.wasm");
    let module =
        std::fs::read(&module).with_context(|| format!("failed to read {}", module.display()))?;
    let host = GuestHost::open_blocking(&options(guests, &[Hook::Validation]))?;
    let mut times = Vec::new();
    for version in 0..MODULES {
        // An additional custom section changes the digest, and nothing else.
        let mut changed = module.clone();
        changed.extend([0, 2, 1, version]);
        let begun = Instant::now();
        runtime.block_on(async {
            let config = ModuleConfig {
                settings: "{}".to_owned(),
                ..ModuleConfig::default()
            };
            let guest = host.prepare(Hook::Validation, changed, config).await?;
            let admission = Admission::of(Operation::Create);
            let asked = host.validate(&guest, &admission, &json!({}), None).await;
            black_box(asked.expect("an answer"));
            anyhow::Ok(())
        })?;
        times.push(begun.elapsed());
    }
    println!(
        "a new module of {} KB to its first answer: {:.0} ms",
        module.len() / 1_000,
        microseconds(median(times)) / 1_000.0
    );
    Ok(())
}

fn timed<T>(call: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    black_box(call());
    begun.elapsed()
}

/// The median of an odd number of times.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000_000.0
}
