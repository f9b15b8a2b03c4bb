//! The example policies in Rust decide as their READMEs describe, as components.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ipu_api::guest::namespace::{NamespaceContext, Usage};
use ipu_api::guest::placement::{
    ControllerView, Decision, Gang, Options, PartitionRequest, PlaceAttempt, PlaceOutcome,
    PlacementContext, SizeCount,
};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::model::built_in_file;
use ipu_guest_host::{BUILT_IN, GuestHost};
use serde_json::{Value, json};

use super::{create, guests, open, options};

pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| release::guests::build_examples().expect("the examples can be built"))
}

/// Loads the example of this name instead of the built-in guest.
async fn policy(name: &str, hook: Hook, settings: Value) -> GuestHost {
    replaced(&built().join(format!("{name}.wasm")), hook, settings).await
}

/// Loads the component of this file instead of the built-in guest.
async fn replaced(file: &Path, hook: Hook, settings: Value) -> GuestHost {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(file, folder.path().join(built_in_file(hook))).unwrap();
    let mut options = options(&[hook]);
    options.guests_dir = folder.path().to_owned();
    options.settings = settings;
    open(options).await
}

fn view(name: &str, total: u32, used: u32) -> ControllerView {
    ControllerView {
        name: name.to_owned(),
        has_nodes: true,
        total_ipus: total,
        used_ipus: used,
        largest_free: total - used,
        ..ControllerView::default()
    }
}

fn request(ipus: u32, used: Option<u32>) -> PartitionRequest {
    let usage = used.map(|ipus| Usage {
        ipus,
        ..Usage::default()
    });
    PartitionRequest {
        namespace: "vision".to_owned(),
        owner: "mnist".to_owned(),
        ipus,
        gcds: 1,
        context: PlacementContext {
            namespace: NamespaceContext {
                labels: Some([("ipus".to_owned(), "16".to_owned())].into()),
                usage,
            },
            ..PlacementContext::default()
        },
        ..PartitionRequest::default()
    }
}

fn quota() -> Value {
    json!({ "quota": { "ipus": 4, "namespaceLabel": "ipus" } })
}

fn refused_by_half() -> PlaceAttempt {
    PlaceAttempt {
        controller: "half".to_owned(),
        outcome: PlaceOutcome::Refused,
        reason: "no IPUs are adjacent".to_owned(),
    }
}

async fn decided(
    policies: &GuestHost,
    ipus: u32,
    controllers: &[ControllerView],
    attempts: &[PlaceAttempt],
) -> Decision {
    let request = request(ipus, None);
    let placed = policies.place(&BUILT_IN, &request, controllers, attempts);
    placed.await.unwrap().answer
}

#[tokio::test]
async fn best_fit_chooses_the_fullest_controller_with_enough_capacity() {
    let policies = policy("best-fit", Hook::Placement, json!({})).await;
    let controllers = [
        view("empty", 64, 0),
        view("half", 64, 32),
        view("full", 64, 60),
    ];
    for (ipus, attempts, expected) in [
        (4, vec![], "full"),
        (16, vec![], "half"),
        (16, vec![refused_by_half()], "empty"),
    ] {
        let decided = decided(&policies, ipus, &controllers, &attempts).await;
        assert_eq!(decided, Decision::Try(expected.to_owned()));
    }
}

#[tokio::test]
async fn fragmentation_splits_the_smallest_block_that_is_large_enough() {
    let file = guests().join("fragmentation.wasm");
    let policies = replaced(&file, Hook::Placement, json!({})).await;
    let known = ControllerView {
        free_blocks: vec![SizeCount { ipus: 2, count: 2 }],
        ..view("known", 64, 60)
    };
    let controllers = [
        view("empty", 64, 0),
        // The host estimates blocks of 16 and 8 IPUs.
        view("half", 64, 40),
        view("full", 64, 60),
        known,
    ];
    for (ipus, attempts, expected) in [
        (2, vec![], "known"),
        (4, vec![], "full"),
        (8, vec![], "half"),
        (16, vec![], "half"),
        (16, vec![refused_by_half()], "empty"),
    ] {
        let decided = decided(&policies, ipus, &controllers, &attempts).await;
        assert_eq!(decided, Decision::Try(expected.to_owned()));
    }
}

#[tokio::test]
async fn the_quota_is_held_at_placement() {
    let policies = policy("namespace-quota", Hook::Placement, quota()).await;
    let controllers = [view("full", 16, 16), view("free", 64, 0)];
    let mut gang = request(4, Some(8));
    gang.context.options = Options {
        gang: Some(Gang { size: 4, held: 1 }),
        ..Options::default()
    };
    for (request, expected) in [
        (request(4, Some(12)), Ok("free")),
        (request(8, Some(12)), Err("uses 12 IPUs and may have 16")),
        (request(4, None), Err("not known yet")),
        (gang, Err("uses 8 IPUs and may have 16: 12 more")),
    ] {
        let placed = policies.place(&BUILT_IN, &request, &controllers, &[]).await;
        match (placed.unwrap().answer, expected) {
            (Decision::Try(name), Ok(expected)) => assert_eq!(name, expected),
            (Decision::Wait(why), Err(expected)) => {
                assert!(why[0].reason.contains(expected), "{why:?}");
            }
            (decision, expected) => panic!("{decision:?} but {expected:?}"),
        }
    }
}

#[tokio::test]
async fn the_quota_warns_at_admission_and_refuses_nothing() {
    let policies = policy("namespace-quota", Hook::Validation, quota()).await;
    let mut admission = create();
    admission.namespace = "vision".to_owned();
    admission.context = request(0, Some(12)).context.namespace;
    for (ipus, is_warned) in [("4", false), ("8", true)] {
        let job = json!({"spec": {"jobInstances": 1, "ipusPerJobInstance": ipus}});
        let served = policies
            .validate(&BUILT_IN, &admission, &job, None)
            .await
            .unwrap();
        assert_eq!(served.answer.violations, []);
        assert_eq!(!served.answer.warnings.is_empty(), is_warned, "{ipus}");
    }
}
