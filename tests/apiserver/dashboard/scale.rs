//! The dashboard of a large cluster: the rows of its pages and its memory have bounds.

use futures::StreamExt;
use futures::stream;
use ipu_api::vipu_controller::VIPUController;
use kube::Client;
use serde_json::{Value, json};
use tests::chromium::{Browser, Page};

use super::browser::shows;
use super::fixture::{Dashboard, controller, create, on, partition};
use crate::extent::full_or;
use crate::kubectl_ipu::Office;

/// V-IPU controllers, of 64 IPUs each, and IPUPartitions, of which every fifth one waits: in full,
/// and otherwise.
const SIZES: [(u32, u32); 2] = [(256, 1_000), (64, 300)];

/// Rows of a page.
const ROWS: u32 = 50;

/// Times in which the page draws, and the browser the same number of plain elements.
const TIMES: u32 = 5;

/// Longest time to draw the maps, in multiples of the time that the browser needs for as many plain
/// elements.
const SLOWER: f64 = 12.0;

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
    maps(&mut page, &dashboard, controllers).await;
    for (place, rows, count, title) in [
        (
            "#partitions",
            "#main tbody tr",
            partitions,
            format!("{partitions} partitions"),
        ),
        ("#queue", "#main .queue > li[data-key]", waiting, queue),
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

/// All V-IPU controllers with all partitions are on one page, which is drawn about as fast as the
/// browser can.
async fn maps(page: &mut Page, dashboard: &Dashboard, controllers: u32) {
    let title = format!("{controllers} V-IPU controllers");
    let mut drawn = f64::INFINITY;
    for _ in 0..TIMES {
        page.go(&dashboard.url("#policies")).await.unwrap();
        shows(page, &["0 policies"]).await;
        page.press("2").await.unwrap();
        shows(page, &[&title]).await;
        let measured = "performance.getEntriesByName('drawn').at(-1).duration";
        let measured = page.evaluate(measured).await.unwrap();
        drawn = drawn.min(measured.as_f64().unwrap());
    }
    let tiles = "document.querySelectorAll('#main .tile').length";
    assert_eq!(page.evaluate(tiles).await.unwrap(), controllers);
    let plain = page.evaluate(PLAIN).await.unwrap().as_f64().unwrap();
    println!("{title}: drawn in {drawn:.0} ms; as many plain elements in {plain:.0} ms");
    assert!(
        drawn <= SLOWER * plain,
        "{drawn} ms, and {plain} ms for plain elements"
    );
    page.press("1").await.unwrap();
    shows(page, &["more V-IPU controllers"]).await;
}

/// Milliseconds in which the browser lays out as many plain elements as the page has, at best.
const PLAIN: &str = "(() => {
    const count = document.querySelectorAll('#main *').length;
    const holder = document.getElementById('status');
    const times = Array.from({ length: 5 }, () => {
        const start = performance.now();
        const all = document.createElement('div');
        for (let index = 0; index < count; index += 1) {
            const one = document.createElement('span');
            one.setAttribute('class', 'dim');
            one.append('x');
            all.append(one);
        }
        holder.replaceChildren(all);
        holder.getBoundingClientRect();
        return performance.now() - start;
    });
    return Math.min(...times);
})()";
