//! What the page about queues tells admins and users to do: every manifest and every command, done in their order. Then two
//! teams share the IPUs as the page says.

use std::fs;

use cluster::wait::eventually;
use serde_json::json;
use tests::documents::{Block, Typed};
use tests::kueue::objects::QUEUE_LABEL;
use tests::kueue::workload::{Workload, of_job};

use super::fixture::{Fixture, job};
use crate::chart::admin::Admin;
use crate::processes::RELEASE;

/// The page, with the marks of its manifests and commands.
const PAGE: Typed = Typed {
    document: "charts/ipu-operator/docs/kueue",
    marks: &["yaml", "sh kueue"],
};

/// Where the part for admins begins, which comes after that for users.
const FOR_ADMINS: &str = "\n## For admins\n";

/// Applies a manifest, or types commands.
fn follow(admin: &Admin, block: &Block<'_>) {
    let followed = if block.mark == "yaml" {
        let file = admin.file("block.yaml", block.commands);
        admin.kubectl(&["apply", "--filename", &file])
    } else {
        admin.shell(block.commands)
    };
    followed.unwrap_or_else(|error| panic!("{}.md: {block:?}\n{error}", PAGE.document));
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
    let fixture = Fixture::with_quota(4).await;
    let admin = Admin::of(RELEASE, fixture.place.plane.kubeconfig());
    let path = format!("{}/../../{}.md", admin.chart(), PAGE.document);
    let text = fs::read_to_string(&path).unwrap();
    let (for_users, for_admins) = text.split_once(FOR_ADMINS).expect("it has both parts");
    let mut followed = 0;
    for part in [for_admins, for_users] {
        for block in PAGE.blocks(part) {
            follow(&admin, &block);
            followed += 1;
        }
    }
    assert!(followed > 6, "{followed} blocks");

    // Team a borrows what team b does not use, until team b needs it.
    let (large, small) = (("team-a", "large"), ("team-b", "small"));
    submit(&admin, large.0, large.1, 16);
    once(&fixture, large, "is admitted", |one| one.is("Admitted")).await;
    submit(&admin, small.0, small.1, 8);
    let preempted = once(&fixture, large, "is preempted", |one| {
        one.is("Evicted") && !one.holds_quota()
    });
    assert_eq!(preempted.await.reason("Evicted"), "Preempted");
    once(&fixture, small, "is admitted", |one| one.is("Admitted")).await;
    assert!(fixture.most_taken() <= 16, "{}", fixture.most_taken());
}
