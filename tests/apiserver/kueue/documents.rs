//! The pages about queues for admins and users: the test runs every manifest and every command in
//! order, with a Kueue that is configured as the pages describe. Then two teams share the IPUs as
//! the pages describe.

use std::fs;

use cluster::settings::Settings;
use cluster::wait::{Seen, eventually};
use serde_json::{Value, json};
use tests::documents::{Block, QUEUES, Typed};
use tests::kueue::objects::{QUEUE_LABEL, cluster_queue};
use tests::kueue::workload::{Workload, of_job};

use super::fixture::{FLAVOR, Fixture, QUEUE, job};
use super::topology;
use crate::chart::admin::Admin;
use crate::processes::RELEASE;

/// Whether a block is a part of Kueue's configuration, which is a file of its manager and not an
/// object.
fn is_configuration(block: &Block<'_>) -> bool {
    block.mark == "yaml" && block.commands.contains("\nkind: Configuration\n")
}

/// The pages with their texts, in the order in which they are followed.
fn pages() -> Vec<(Typed, String)> {
    let checkout = Settings::from_env().unwrap().checkout;
    let page = |typed: Typed| {
        let path = checkout.join(format!("{}.md", typed.document));
        (typed, fs::read_to_string(path).unwrap())
    };
    QUEUES.into_iter().map(page).collect()
}

/// Returns the parts of Kueue's configuration on the pages, merged.
fn configuration(pages: &[(Typed, String)]) -> Value {
    let mut configuration = json!({});
    let blocks = pages.iter().flat_map(|(typed, text)| typed.blocks(text));
    for block in blocks.filter(is_configuration) {
        let part: Value = serde_saphyr::from_str(block.commands).unwrap();
        json_patch::merge(&mut configuration, &part);
    }
    assert!(configuration["integrations"].is_object(), "{configuration}");
    assert!(configuration["fairSharing"].is_object(), "{configuration}");
    configuration
}

/// Applies a manifest of a page, or runs its commands.
fn follow(admin: &Admin, document: &str, block: &Block<'_>) {
    let followed = if block.mark == "yaml" {
        let file = admin.file("block.yaml", block.commands);
        admin.kubectl(&["apply", "--filename", &file])
    } else {
        admin.shell(block.commands)
    };
    followed.unwrap_or_else(|error| panic!("{document}.md: {block:?}\n{error}"));
}

/// Submits a job of a team.
fn submit(admin: &Admin, team: &str, name: &str, ipus: u32) {
    let mut job = job(name, ipus);
    job["metadata"]["namespace"] = json!(team);
    job["metadata"]["labels"][QUEUE_LABEL] = json!(team);
    let file = admin.file("job.json", &job.to_string());
    admin.kubectl(&["create", "--filename", &file]).unwrap();
}

/// The Workload of a team's job once it `is_so`.
async fn once(
    fixture: &Fixture,
    (team, job): (&str, &str),
    what: &str,
    is_so: impl Fn(&Workload) -> bool,
) -> Workload {
    eventually(&format!("the Workload of {job} {what}"), async || {
        let found = of_job(&fixture.installation.client, team, job).await;
        Seen::first(found, &is_so)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_pages_about_queues_say_works() {
    let pages = pages();
    let queue = cluster_queue(QUEUE, &[(FLAVOR, 4)]);
    let fixture = Fixture::with_configuration(queue, &configuration(&pages)).await;
    let admin = Admin::of(RELEASE, fixture.installation.plane.kubeconfig());
    let mut followed = 0;
    for (typed, text) in &pages {
        let blocks = typed.blocks(text).into_iter();
        for block in blocks.filter(|block| !is_configuration(block)) {
            follow(&admin, typed.document, &block);
            followed += 1;
        }
    }
    assert!(followed > 6, "{followed} blocks");

    share(&fixture, &admin).await;
    topology::keeps_pods_at_one_controller(&fixture).await;
}

/// Team a borrows what team b does not use, until team b needs it. Then team b borrows no more than
/// its limit.
async fn share(fixture: &Fixture, admin: &Admin) {
    let (large, small) = (("team-a", "large"), ("team-b", "small"));
    submit(admin, large.0, large.1, 16);
    once(fixture, large, "is admitted", |one| one.is("Admitted")).await;
    submit(admin, small.0, small.1, 8);
    let preempted = once(fixture, large, "is preempted", |one| {
        one.is("Evicted") && !one.holds_quota()
    });
    assert_eq!(preempted.await.reason("Evicted"), "Preempted");
    once(fixture, small, "is admitted", |one| one.is("Admitted")).await;

    let (within, above) = (("team-b", "within"), ("team-b", "above"));
    submit(admin, within.0, within.1, 4);
    once(fixture, within, "is admitted", |one| one.is("Admitted")).await;
    submit(admin, above.0, above.1, 4);
    once(fixture, above, "waits", |one| {
        let message = one.message("QuotaReserved");
        !one.is("QuotaReserved") && message.contains("insufficient unused quota")
    })
    .await;
    eventually("team b has as many IPUs as it may have", async || {
        Seen::when(fixture.taken(), |taken| *taken == 12)
    })
    .await;
    assert!(fixture.most_taken() <= 16, "{}", fixture.most_taken());
}
