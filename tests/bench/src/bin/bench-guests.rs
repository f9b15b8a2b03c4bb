//! Measures the cost of WebAssembly: a call of a guest in a new instance, compared with the same
//! code run natively, and the time from the bytes of a new module to its first answer.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, criterion_group, criterion_main};
use ipu_guest_host::context::{Admission, Operation};
use ipu_guest_host::model::Hook;
use ipu_guest_host::{BUILT_IN, GuestHost, GuestHostOptions, ModuleConfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

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

fn options(guests: &Path, hooks: &[Hook]) -> GuestHostOptions {
    GuestHostOptions {
        guests_dir: guests.to_owned(),
        hooks: hooks.to_vec(),
        ..GuestHostOptions::default()
    }
}

/// Both sides begin and end with a JSON value, as the webhook does. Native code runs twice: in the
/// calling thread, and off the async threads, where guests always run. The difference between the
/// latter and the guest is the cost of WebAssembly. The rest is the cost of threads.
fn calls(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let guests = release::guests::build().expect("the guests can be built");
    let hooks = [Hook::Defaulting, Hook::Validation];
    let policies = GuestHost::open_blocking(&options(&guests, &hooks)).expect("the guests load");
    let (job, admission) = (Arc::new(job()), Admission::of(Operation::Create));

    let mut group = criterion.benchmark_group("defaulting");
    native(&mut group, &runtime, &job, |job| {
        let object = serde_json::from_str(&job.to_string()).expect("JSON");
        let defaulted = guest_defaulting::defaults::apply(object).expect("a job");
        serde_json::from_str::<Value>(&defaulted.object.to_string())
    });
    group.bench_function("guest", |bencher| {
        bencher.iter(|| {
            let call = policies.default_object(&BUILT_IN, &admission, black_box(&job), None);
            runtime.block_on(call).expect("an answer")
        });
    });
    group.finish();

    let mut group = criterion.benchmark_group("validation");
    native(&mut group, &runtime, &job, |job| {
        let object = serde_json::from_str(&job.to_string()).expect("JSON");
        let settings = guest_validation::rules::Settings::default();
        guest_validation::rules::check(&object, None, settings)
    });
    group.bench_function("guest", |bencher| {
        bencher.iter(|| {
            let call = policies.validate(&BUILT_IN, &admission, black_box(&job), None);
            runtime.block_on(call).expect("an answer")
        });
    });
    group.finish();
}

fn native<T: Send + 'static>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    runtime: &Runtime,
    job: &Arc<Value>,
    decide: fn(&Value) -> T,
) {
    group.bench_function("native", |bencher| {
        bencher.iter(|| decide(black_box(job)));
    });
    group.bench_function("native, off the async threads", |bencher| {
        bencher.iter(|| {
            let job = Arc::clone(job);
            let decided = runtime.spawn_blocking(move || decide(black_box(&job)));
            runtime.block_on(decided).expect("an answer")
        });
    });
}

/// Measures from the bytes of a module that the host has never loaded to its first answer.
fn swap(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let built = release::guests::build().expect("the guests can be built");
    let module = std::fs::read(built.join("validation.wasm")).expect("the guest is there");
    let options = options(&built, &[Hook::Validation]);
    let policies = GuestHost::open_blocking(&options).expect("the guests load");
    let mut version = 0_u8;
    let mut group = criterion.benchmark_group("swap");
    group.sample_size(20);
    group.bench_function("new module to first answer", |bencher| {
        bencher.iter_batched(
            || {
                version = version.wrapping_add(1);
                let mut changed = module.clone();
                changed.extend([0, 2, 1, b'a' + version % 26]);
                changed
            },
            |changed| {
                let config = ModuleConfig {
                    settings: "{}".to_owned(),
                    ..ModuleConfig::default()
                };
                let prepared = policies.prepare(Hook::Validation, changed, config);
                let guest = runtime.block_on(prepared).expect("the guest loads");
                let admission = Admission::of(Operation::Create);
                let object = json!({});
                let asked = policies.validate(&guest, &admission, &object, None);
                runtime.block_on(asked).expect("an answer")
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, calls, swap);
criterion_main!(benches);
