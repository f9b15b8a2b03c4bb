//! The dashboard of a large cluster: the rows of its pages and its memory have bounds.

use futures::StreamExt;
use futures::stream;
use ipu_api::vipu_controller::VIPUController;
use kube::Client;
use serde_json::{Value, json};
use tests::chromium::Browser;

use super::browser::shows;
use super::fixture::{Dashboard, controller, create, on, partition};
use crate::kubectl_ipu::Office;

/// V-IPU controllers, of 64 IPUs each.
const CONTROLLERS: u32 = 256;

/// IPUPartitions. Every fifth one waits.
const PARTITIONS: u32 = 1_000;

/// Rows of a page.
const ROWS: u64 = 50;

/// Objects that are created at a time.
const AT_A_TIME: usize = 16;

/// Maximum memory of the dashboard, in KiB. A debug build needs more than a release.
const MEMORY: u64 = 200 * 1_024;

fn waits(partition: u32) -> bool {
    partition.is_multiple_of(5)
}

fn name(controller: u32) -> String {
    format!("pod{controller:03}")
}

/// The reason of each V-IPU controller.
fn reasons() -> Vec<Value> {
    let reason = |controller: u32| {
        json!({
            "controller": format!("{}:8090", name(controller)),
            "reason": "its largest free partition is 32, smaller than the 64 requested",
        })
    };
    (0..CONTROLLERS).map(reason).collect()
}

/// Creates all objects, as the operator would.
async fn fill(client: &Client) {
    let controllers = stream::iter(0..CONTROLLERS);
    controllers
        .for_each_concurrent(AT_A_TIME, async |number| {
            let own = (0..PARTITIONS).filter(|one| one % CONTROLLERS == number);
            let used: u32 = own.filter(|one| !waits(*one)).map(|_| 4_u32).sum();
            let object = controller(&name(number), [64, used, 0, 32]);
            create::<VIPUController>(client, None, object).await;
        })
        .await;
    let partitions = stream::iter(0..PARTITIONS);
    partitions
        .for_each_concurrent(AT_A_TIME, async |number| {
            let owner = format!("team-{}/job-{number:04}", number % 10);
            let (ipus, status) = if waits(number) {
                (64, json!({"phase": "Pending", "waiting": reasons()}))
            } else {
                (4, on(&name(number % CONTROLLERS), &owner, "Ready"))
            };
            partition(client, (&owner, &owner), ipus, status).await;
        })
        .await;
}

#[tokio::test]
async fn pages_and_memory_are_bounded_with_256_controllers_and_1000_partitions() {
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    fill(&office.client).await;
    let dashboard = Dashboard::start(&office, "root", &[]).await;
    let browser = Browser::start().await.unwrap();
    let mut page = browser.open().await.unwrap();
    for (place, rows, all, first, second) in [
        (
            "#controllers",
            "#main section.controller",
            "256 V-IPU controllers",
            "1 to 50 of 256",
            "51 to 100 of 256",
        ),
        (
            "#partitions",
            "#main tbody tr",
            "1000 partitions",
            "1 to 50 of 1000",
            "51 to 100 of 1000",
        ),
        (
            "#queue",
            "#main tbody tr",
            "200 requests wait for 12800 IPUs",
            "1 to 50 of 200",
            "51 to 100 of 200",
        ),
    ] {
        page.go(&dashboard.url(place)).await.unwrap();
        shows(&mut page, &[all, first]).await;
        let count = format!("document.querySelectorAll('{rows}').length");
        assert_eq!(page.evaluate(&count).await.unwrap(), ROWS, "{place}");
        // The next page.
        page.press("n").await.unwrap();
        shows(&mut page, &[all, second]).await;
        assert_eq!(page.evaluate(&count).await.unwrap(), ROWS, "{place}");
    }
    assert!(page.problems().is_empty(), "{:#?}", page.problems());
    let memory = dashboard.peak_memory();
    assert!(memory <= MEMORY, "{memory} KiB");
}
