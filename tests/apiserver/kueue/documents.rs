//! The page about queues for admins and users: the test runs every manifest and every command in order, with a Kueue
//! that is configured as the page describes. Then two teams share the IPUs as the page describes.

use std::fs;

use cluster::settings::Settings;
use cluster::wait::{Seen, eventually};
use serde_json::{Value, json};
use tests::documents::{Block, QUEUES};
use tests::kueue::objects::{QUEUE_LABEL, cluster_queue};
use tests::kueue::workload::{Workload, of_job};

use super::fixture::{FLAVOR, Fixture, QUEUE, job};
use crate::chart::admin::Admin;
use crate::processes::RELEASE;

/// The beginning of the part for admins, which follows the part for users.
const FOR_ADMINS: &str = "\n## For admins\n";

/// Whether a block is a part of Kueue's configuration, which is a file of its manager and not an
/// object.
fn is_configuration(block: &Block<'_>) -> bool {
    block.mark == "yaml" && block.commands.contains("\nkind: Configuration\n")
}

/// Returns the parts of Kueue's configuration on the page, merged.
fn configuration(text: &str) -> Value {
    let mut configuration = json!({});
    for block in QUEUES
        .blocks(text)
        .iter()
        .filter(|one| is_configuration(one))
    {
        let part: Value = serde_saphyr::from_str(block.commands).unwrap();
        json_patch::merge(&mut configuration, &part);
    }
    assert!(configuration["integrations"].is_object(), "{configuration}");
    assert!(configuration["fairSharing"].is_object(), "{configuration}");
    configuration
}

/// Applies a manifest, or runs commands.
fn follow(admin: &Admin, block: &Block<'_>) {
    let followed = if block.mark == "yaml" {
        let file = admin.file("block.yaml", block.commands);
        admin.kubectl(&["apply", "--filename", &file])
    } else {
        admin.shell(block.commands)
    };
    followed.unwrap_or_else(|error| panic!("{}.md: {block:?}\n{error}", QUEUES.document));
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
        let found = of_job(&fixture.place.client, team, job).await;
        let found = found.map_err(|error| error.to_string())?;
        let seen = format!("{found:?}");
        found.into_iter().find(&is_so).ok_or(seen)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_page_about_queues_says_works() {
    let page = format!("{}.md", QUEUES.document);
    let path = Settings::from_env().unwrap().checkout.join(page);
    let text = fs::read_to_string(path).unwrap();
    let queue = cluster_queue(QUEUE, &[(FLAVOR, 4)]);
    let fixture = Fixture::with_configuration(queue, &configuration(&text)).await;
    let admin = Admin::of(RELEASE, fixture.place.plane.kubeconfig());
    let (for_users, for_admins) = text.split_once(FOR_ADMINS).expect("it has both parts");
    let mut followed = 0;
    for part in [for_admins, for_users] {
        let blocks = QUEUES.blocks(part).into_iter();
        for block in blocks.filter(|one| !is_configuration(one)) {
            follow(&admin, &block);
            followed += 1;
        }
    }
    assert!(followed > 6, "{followed} blocks");

    share(&fixture, &admin).await;
}

/// Team a borrows what team b does not use, until team b needs it. Then team b borrows no more than its limit.
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
