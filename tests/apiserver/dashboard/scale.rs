//! The dashboard of a large cluster: the rows of its pages and its memory have bounds.

use futures::StreamExt;
use futures::stream;
use ipu_api::vipu_controller::VIPUController;
use kube::Client;
use serde_json::{Value, json};
use tests::chromium::Browser;

use super::browser::shows;
use super::fixture::{Dashboard, controller, create, on, partition};
use crate::extent::full_or;
use crate::kubectl_ipu::Office;

/// V-IPU controllers, of 64 IPUs each, and IPUPartitions, of which every fifth one waits: in full, and otherwise.
const SIZES: [(u32, u32); 2] = [(256, 1_000), (64, 300)];

/// Rows of a page.
const ROWS: u32 = 50;

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
fn reasons(controllers: u32) -> Vec<Value> {
    let reason = |controller: u32| {
        json!({
            "controller": format!("{}:8090", name(controller)),
            "reason": "its largest free partition is 32, smaller than the 64 requested",
        })
    };
    (0..controllers).map(reason).collect()
}

/// Creates all objects, as the operator would.
async fn fill(client: &Client, controllers: u32, partitions: u32) {
    stream::iter(0..controllers)
        .for_each_concurrent(AT_A_TIME, async |number| {
            let own = (0..partitions).filter(|one| one % controllers == number);
            let used: u32 = own.filter(|one| !waits(*one)).map(|_| 4_u32).sum();
            let object = controller(&name(number), [64, used, 0, 32]);
            create::<VIPUController>(client, None, object).await;
        })
        .await;
    stream::iter(0..partitions)
        .for_each_concurrent(AT_A_TIME, async |number| {
            let owner = format!("team-{}/job-{number:04}", number % 10);
            let (ipus, status) = if waits(number) {
                (
                    64,
                    json!({"phase": "Pending", "waiting": reasons(controllers)}),
                )
            } else {
                (4, on(&name(number % controllers), &owner, "Ready"))
            };
            partition(client, (&owner, &owner), ipus, status).await;
        })
        .await;
}

#[tokio::test]
async fn pages_and_memory_are_bounded_with_many_controllers_and_partitions() {
    let [full, otherwise] = SIZES;
    let (controllers, partitions) = full_or(full, otherwise);
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    fill(&office.client, controllers, partitions).await;
    let dashboard = Dashboard::start(&office, "root", &[]).await;
    let browser = Browser::start().await.unwrap();
    let mut page = browser.open().await.unwrap();
    let waiting = partitions.div_ceil(5);
    let queue = format!("{waiting} requests wait for {} IPUs", 64 * waiting);
    for (place, rows, count, title) in [
        (
            "#controllers",
            "#main section.controller",
            controllers,
            format!("{controllers} V-IPU controllers"),
        ),
        (
            "#partitions",
            "#main tbody tr",
            partitions,
            format!("{partitions} partitions"),
        ),
        ("#queue", "#main tbody tr", waiting, queue),
    ] {
        page.go(&dashboard.url(place)).await.unwrap();
        shows(&mut page, &[&title, &format!("1 to {ROWS} of {count}")]).await;
        let shown = format!("document.querySelectorAll('{rows}').length");
        assert_eq!(page.evaluate(&shown).await.unwrap(), ROWS, "{place}");
        page.press("n").await.unwrap();
        let last = count.min(2 * ROWS);
        let second = format!("{} to {last} of {count}", ROWS + 1);
        shows(&mut page, &[&title, &second]).await;
        let rows = page.evaluate(&shown).await.unwrap();
        assert_eq!(rows, last - ROWS, "{place}");
    }
    assert!(page.problems().is_empty(), "{:#?}", page.problems());
    let memory = dashboard.peak_memory();
    assert!(memory <= MEMORY, "{memory} KiB");
}
