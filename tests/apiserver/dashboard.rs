//! `kubectl ipu dashboard` as a program on a real API server: it shows what its user may read,
//! follows changes, and stops when the user loses the rights.

mod browser;
pub(crate) mod fixture;
mod modules;
mod running;
mod scale;

use cluster::wait::eventually;
use serde_json::{Value, json};

use self::fixture::{Dashboard, fill};
use crate::kubectl_ipu::Office;

#[tokio::test]
async fn each_view_shows_the_cluster_and_follows_it() {
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    fill(&office.client).await;
    let dashboard = Dashboard::start(&office, "root", &["--namespace", "team-a"]).await;
    assert!(dashboard.page().ends_with("/?namespace=team-a"));

    let is_full = |json: &Value| json["ipus"]["total"] == 192 && json["notShown"] == json!([]);
    let overview = dashboard.once("overview", is_full).await;
    assert_eq!(overview["ipus"]["used"], 76);
    assert_eq!(overview["waiting"]["oldest"]["name"], "team-a.large-0");
    let wrong = overview["attention"]["rows"].to_string();
    assert!(wrong.contains("node2"), "{wrong}");
    let complete = |json: &Value| json["total"] == 3 && json["notShown"] == json!([]);
    let controllers = dashboard.once("controllers", complete).await;
    let first = &controllers["rows"][0];
    assert_eq!(first["address"], "pod1:8090");
    let blocks = first["blocks"].as_array().unwrap().iter();
    let states: Vec<_> = blocks.map(|one| one["state"].as_str()).collect();
    let expected = [
        "error",
        "forming",
        "releasing",
        "resetting",
        "ready",
        "running",
        "others",
    ];
    for state in expected {
        assert!(states.contains(&Some(state)), "{state}: {states:?}");
    }
    let queue = dashboard.once("queue", |json| json["waiting"] == 2).await;
    assert_eq!(queue["rows"][0]["position"], 1);
    assert_eq!(queue["largestFit"]["controller"], "pod2:8090");
    let partition = dashboard.once("partition/team-a.train-0", |_| true).await;
    assert_eq!(partition["owner"]["job"]["state"], "Running");
    let job = dashboard.once("job/team-a/train", |_| true).await;
    assert_eq!(job["advice"], json!(["nothing: the job runs"]));
    assert_eq!(job["stages"]["spans"].as_array().unwrap().len(), 4);
    assert_eq!(job["partitions"][0]["name"], "team-a.train-0");
    assert_eq!(job["pods"].as_array().unwrap().len(), 2);
    assert_eq!(job["events"].as_array().unwrap().len(), 4);
    let policies = dashboard.once("policies", |json| json["total"] == 1).await;
    assert_eq!(policies["rows"][0]["shadow"]["different"], 2);
    let goodput = dashboard.once("goodput", |json| json["total"] == 2).await;
    assert_eq!(goodput["rows"][0]["namespace"], "team-a");

    office
        .admin
        .kubectl(&["delete", "ipupartition", "team-b.late-0"])
        .unwrap();
    dashboard.once("queue", |json| json["waiting"] == 1).await;
}

#[tokio::test]
async fn the_page_ends_with_the_rights_of_its_user() {
    let office = Office::new().await;
    fill(&office.client).await;
    let nobody = Dashboard::start(&office, "bob", &[]).await;
    let refused = |json: &Value| json["notShown"].to_string().contains("cannot list");
    let queue = nobody.once("queue", refused).await;
    assert_eq!(queue["total"], 0);

    office.grant("clusterrolebinding", "cluster-admin", "alice");
    let dashboard = Dashboard::start(&office, "alice", &[]).await;
    dashboard
        .once("partitions", |json| json["total"] != 0)
        .await;
    let revoke = ["delete", "clusterrolebinding", "alice"];
    office.admin.kubectl(&revoke).unwrap();
    let words = "the IPUPartitions: the API server ended the watch";
    let ended = |json: &Value| json["notShown"].to_string().contains(words);
    let partitions = dashboard.once("partitions", ended).await;
    assert_eq!(partitions["total"], 0);
}

impl Dashboard {
    /// Returns the JSON of a view, once it is as wanted.
    pub(crate) async fn once(&self, view: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let url = self.url(&format!("api/{view}"));
        eventually(view, async || {
            let answer = cluster::http::request("GET", &url, "").await;
            let text = answer.map_err(|error| error.to_string())?;
            let json: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if is_wanted(&json) {
                Ok(json)
            } else {
                Err(text)
            }
        })
        .await
    }
}
