//! The example policies in JavaScript, Python and C: built with their own tools, loaded as the
//! operator loads them, and called; and the exporter of IPUs in Python. Needs npm, Python with pip,
//! and Debian's packages.
#![allow(
    clippy::unwrap_used,
    reason = "an error in a test's helper fails the test"
)]

mod exporter;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use ipu_api::guest::admission::{Admission, Operation};
use ipu_api::guest::namespace::NamespaceContext;
use ipu_api::guest::placement::{ControllerView, Decision, PartitionRequest, PlacementContext};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::model::built_in_file;
use ipu_guest_host::{BUILT_IN, GuestHost, GuestHostOptions, Limits};
use serde_json::{Value, json};
use tests::languages;

/// Number of measured calls.
const CALLS: u32 = 50;

/// Loads the component instead of the built-in guest, and prints the time. The time includes
/// compiling the interpreter of the guest's language.
async fn open(component: &Path, hook: Hook, settings: Value) -> GuestHost {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(component, folder.path().join(built_in_file(hook))).unwrap();
    let begin = Instant::now();
    let policies = GuestHost::open(GuestHostOptions {
        guests_dir: folder.path().to_owned(),
        compile_cache_dir: None,
        compiler: None,
        settings,
        hooks: vec![hook],
        limits: Limits {
            // In the profile of tests, the compiler is slow, and other tests run beside this one.
            deadline: Duration::from_secs(30),
            ..Limits::default()
        },
    });
    let policies = policies.await.unwrap();
    let size = std::fs::metadata(component).unwrap().len();
    let loaded = begin.elapsed();
    print(&format!(
        "{}: {size} bytes, loaded in {loaded:.1?}",
        component.display()
    ));
    policies
}

/// Measures calls. Each call has a new instance.
async fn time<T>(what: &str, mut call: impl AsyncFnMut() -> T) -> T {
    let mut last = call().await;
    let begin = Instant::now();
    for _ in 0..CALLS {
        last = call().await;
    }
    print(&format!("{what}: {:.1?} a call", begin.elapsed() / CALLS));
    last
}

/// Prints a line. The test runner captures what the macros print, and shows it if a test fails.
fn print(line: &str) {
    let line = format!("{line}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

#[tokio::test]
async fn javascript_requires_labels() {
    let component = languages::javascript().unwrap();
    let settings = json!({"requireLabels": ["team", "cost-centre"]});
    let policies = open(&component, Hook::Validation, settings).await;
    let admission = Admission::of(Operation::Create);
    let job = json!({"metadata": {"labels": {"team": "vision"}}, "spec": {}});
    let served = time("JavaScript", async || {
        policies
            .validate(&BUILT_IN, &admission, &job, None)
            .await
            .unwrap()
    })
    .await;
    let violations = served.answer.violations;
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!(violations[0].field, "metadata.labels[cost-centre]");
}

#[tokio::test]
async fn python_sets_an_image_pull_policy() {
    let component = languages::python().unwrap();
    let settings = json!({"imagePullPolicy": "Never"});
    let policies = open(&component, Hook::Defaulting, settings).await;
    let admission = Admission::of(Operation::Create);
    let containers = json!([{"name": "a"}, {"name": "b", "imagePullPolicy": "Always"}]);
    let job = json!({"spec": {"workers": {"template": {"spec": {"containers": containers}}}}});
    let served = time("Python", async || {
        let answer = policies
            .default_object(&BUILT_IN, &admission, &job, None)
            .await;
        answer.unwrap()
    })
    .await;
    let defaulted = served.answer.defaulted().unwrap();
    let found = defaulted
        .object
        .pointer("/spec/workers/template/spec/containers");
    let expected = json!([
        {"name": "a", "imagePullPolicy": "Never"}, {"name": "b", "imagePullPolicy": "Always"},
    ]);
    assert_eq!(found, Some(&expected));
}

#[tokio::test]
async fn c_steers_by_the_label_of_the_namespace() {
    let component = languages::c().unwrap();
    let policies = open(&component, Hook::Placement, json!({})).await;
    let view = |name: &str, used| ControllerView {
        name: name.to_owned(),
        label_key: "ipunode".to_owned(),
        label_value: name.to_owned(),
        has_nodes: true,
        total_ipus: 16,
        used_ipus: used,
        largest_free: 16 - used,
        ..ControllerView::default()
    };
    let controllers = [view("old", 0), view("new", 8)];
    let request = |pool: Option<&str>, ipus| PartitionRequest {
        namespace: "vision".to_owned(),
        ipus,
        gcds: 1,
        context: PlacementContext {
            namespace: NamespaceContext {
                labels: Some(
                    pool.map(|pool| ("ipu-pool".to_owned(), pool.to_owned()))
                        .into_iter()
                        .collect(),
                ),
                usage: None,
            },
            ..PlacementContext::default()
        },
        ..PartitionRequest::default()
    };
    let place = async |request: &PartitionRequest| {
        let placed = policies.place(&BUILT_IN, request, &controllers, &[]).await;
        placed.unwrap().answer
    };
    let steered = request(Some("new"), 4);
    let decision = time("C", async || place(&steered).await).await;
    assert_eq!(decision, Decision::Try("new".to_owned()));
    let free = place(&request(None, 4)).await;
    assert_eq!(free, Decision::Try("old".to_owned()));
    let mut unknown = request(None, 4);
    unknown.context.namespace.labels = None;
    let Decision::Wait(why) = place(&unknown).await else {
        panic!("a pool that is not known is every pool");
    };
    assert!(why[0].reason.contains("not known yet"), "{why:?}");
    let Decision::Wait(why) = place(&request(Some("new"), 16)).await else {
        panic!("the pool has no free capacity");
    };
    assert!(why[0].reason.contains("ipu-pool"), "{why:?}");
    assert!(why[1].reason.contains("8 of its 16"), "{why:?}");
}
