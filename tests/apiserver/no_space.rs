//! No free space: on the disk for compiled guests, and in etcd. The operator reports it, and
//! continues with the rest of its work.

use std::fs;
use std::path::{Path, PathBuf};

use cluster::control_plane::{ControlPlane, ControlPlaneOptions};
use cluster::http;
use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

use crate::job::single;
use crate::processes::{Given, Installation};

/// A full file system, which is unmounted on drop.
struct Small(PathBuf);

impl Small {
    /// Mounts a tmpfs with an option such as `size=64k`, and fills it.
    fn at(folder: &Path, limit: &str) -> Self {
        fs::create_dir_all(folder).unwrap();
        let none = None::<&str>;
        mount(none, folder, Some("tmpfs"), MsFlags::empty(), Some(limit))
            .unwrap_or_else(|error| panic!("failed to mount a tmpfs ({error}): run it as root"));
        let small = Self(folder.to_owned());
        // If even the file cannot be created, there is no space at all.
        let _ = fs::write(folder.join("ballast"), vec![0; 1 << 20]);
        small
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_disk_full_the_operator_starts_works_and_says_what_it_cannot_do() {
    for limit in ["size=64k", "nr_inodes=1"] {
        let installation = Installation::new().await;
        let _full =
            ["controller", "proxy"].map(|name| Small::at(&installation.compiled(name), limit));
        let proxy = installation.proxy("proxy", Vec::new()).await;
        let controller = installation.controller("controller", Vec::new()).await;
        installation.submit(&single("job")).await;
        installation.runs("job-worker-0").await;
        installation.once("job", JobState::Running).await;
        for process in [&controller, &proxy] {
            process.says("a compiled module is not stored").await;
            process.must_run();
        }
    }
}

/// Size limit of etcd in bytes: the CRDs and the API server's own objects need a few megabytes.
const QUOTA: u64 = 24 << 20;

/// The error of a full etcd, in the API server's response.
const FULL: &str = "database space exceeded";

#[tokio::test(flavor = "multi_thread")]
async fn with_etcd_full_the_operator_survives_and_continues_once_there_is_space() {
    let options = ControlPlaneOptions {
        etcd_quota: Some(QUOTA),
        ..ControlPlaneOptions::default()
    };
    let plane = ControlPlane::start_with(&options).await.unwrap();
    let installation = Installation::of(plane.into(), Given::default()).await;
    let proxy = installation.proxy("proxy", Vec::new()).await;
    let controller = installation.controller("controller", Vec::new()).await;
    installation.submit(&single("job")).await;
    installation.runs("job-worker-0").await;
    installation.once("job", JobState::Running).await;
    let before = installation.partitions().await;

    fill(&installation.client).await;
    for process in [&controller, &proxy] {
        process.says(FULL).await;
        process.says("not renewed in time; no longer leading").await;
    }
    free_space(&installation).await;

    installation.ends("job-worker-0").await;
    installation.once("job", JobState::Completed).await;
    installation.submit(&single("next")).await;
    installation.runs("next-worker-0").await;
    installation.once("next", JobState::Running).await;
    let now = installation.partitions().await;
    assert!(!before.is_empty() && !now.contains(&before[0]), "{now:?}");
    for process in [&controller, &proxy] {
        process.must_run();
    }
}

fn ballast(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

/// Fills etcd to the last byte: with large objects, then with smaller and smaller ones.
async fn fill(client: &Client) {
    let mut size = 512 << 10;
    for number in 0.. {
        let map = json!({
            "metadata": {"name": format!("ballast-{number}"), "labels": {"ballast": "true"}},
            "data": {"ballast": "x".repeat(size)},
        });
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let made = ballast(client).create(&PostParams::default(), &map).await;
        let Err(error) = made else { continue };
        assert!(error.to_string().contains(FULL), "{error}");
        // etcd accepts no more writes of any size.
        if size < 1 << 10 {
            return;
        }
        size /= 2;
    }
}

/// The steps of an admin: delete objects, defragment etcd, and disarm its alarm.
async fn free_space(installation: &Installation) {
    let of_ballast = ListParams::default().labels("ballast=true");
    let (maps, params) = (ballast(&installation.client), DeleteParams::default());
    maps.delete_collection(&params, &of_ballast).await.unwrap();
    eventually("the ballast is gone", async || {
        let left = maps.list(&of_ballast).await;
        Seen::when(left.unwrap().items.len(), |left| *left == 0)
    })
    .await;
    // "x" in Base64, as etcd's gateway requires. Only the revision in the response matters.
    let found = etcd(installation, "kv/range", &json!({"key": "eA=="})).await;
    let revision = &found["header"]["revision"];
    etcd(
        installation,
        "kv/compaction",
        &json!({"revision": revision, "physical": true}),
    )
    .await;
    etcd(installation, "maintenance/defragment", &json!({})).await;
    let alarms = etcd(installation, "maintenance/alarm", &json!({"action": "GET"})).await;
    for alarm in alarms["alarms"].as_array().unwrap() {
        let mut disarm = alarm.clone();
        disarm["action"] = json!("DEACTIVATE");
        etcd(installation, "maintenance/alarm", &disarm).await;
    }
}

async fn etcd(installation: &Installation, what: &str, question: &Value) -> Value {
    let url = format!("{}/v3/{what}", installation.plane.etcd());
    let answer = http::request("POST", &url, &question.to_string()).await;
    serde_json::from_str(&answer.unwrap()).unwrap()
}
