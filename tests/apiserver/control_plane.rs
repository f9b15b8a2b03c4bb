//! The control plane itself: it responds, tests share it, and it ends with its owner.

use cluster::control_plane::ControlPlane;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

/// Number of processes whose command line contains `text`.
fn processes_with(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let command_lines =
        entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    command_lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}

async fn make_a_config_map(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = ConfigMap {
        metadata: ObjectMeta {
            generate_name: Some("test-".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    assert!(made.metadata.uid.is_some());
}

#[tokio::test]
async fn it_ends_with_its_owner() {
    let control_plane = ControlPlane::start().await.unwrap();
    make_a_config_map(control_plane.client().await.unwrap()).await;
    let folder = control_plane.kubeconfig();
    let folder = folder.parent().unwrap().to_owned();
    let mark = folder.to_str().unwrap();
    assert_eq!(processes_with(mark), 2);
    drop(control_plane);
    assert_eq!(processes_with(mark), 0);
    assert!(!folder.exists());
}

#[tokio::test]
async fn two_tests_share_one_control_plane() {
    let first = ControlPlane::shared().await.unwrap();
    let second = ControlPlane::shared().await.unwrap();
    assert_eq!(first.server(), second.server());
    make_a_config_map(second.client().await.unwrap()).await;
}
