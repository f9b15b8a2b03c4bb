//! Saves what explains a failure before the cluster ends: logs of all Pods, and objects of the API
//! server. Prints the ends of the most useful ones.

use std::{fs, path::Path, process::Command, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use tokio::time::timeout;

use crate::{
    command, files, interrupt, kubeconfig as kubeconfigs,
    log_tail::LogTail,
    plan::{bin, kubeconfig},
    settings::Settings,
};

/// Lines of each log that are printed.
const LINES: usize = 12;

/// Longest time for all logs of the API server. It may itself have failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of kubectl, and the file of its output.
const COMMANDS: [(&str, &str); 3] = [
    (
        "jobs.yaml",
        "get ipujobs,ipupartitions --all-namespaces --output yaml",
    ),
    ("pods.txt", "describe pods --all-namespaces"),
    (
        "events.txt",
        "get events --all-namespaces --sort-by=.lastTimestamp",
    ),
];

/// Does work that needs a cluster. If it fails, the explanation is saved and printed before the
/// error is returned. A signal needs no explanation.
pub async fn after<T, E>(
    settings: &Settings,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let result = work.await;
    if result.is_err() && !interrupt::came() {
        write(settings).await;
    }
    result
}

/// Saves and prints the logs that explain a failure. It reports a missing part and continues.
async fn write(settings: &Settings) {
    let kubeconfig = kubeconfig(&settings.run, "admin");
    if !kubeconfig.exists() {
        // No start of a cluster has begun, so there is nothing to save.
        return;
    }
    let logs = settings.logs();
    let dir = logs.join("failure");
    if let Err(error) = files::remove(&dir).and_then(|()| files::make_dir(&dir)) {
        eprintln!("{error}");
        return;
    }
    for (file, question) in COMMANDS {
        let mut kubectl = Command::new(bin(&settings.run).join("kubectl"));
        kubectl
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--request-timeout=10s");
        let answer = command::output(kubectl.args(question.split_whitespace()));
        let answer = answer.unwrap_or_else(|error| error.to_string());
        save(&dir.join(file), &answer);
    }
    match kubeconfigs::client(&kubeconfig).await {
        Ok(client) => {
            if timeout(PATIENCE, save_all_logs(&dir, &client))
                .await
                .is_err()
            {
                eprintln!("the API server was too slow to give the logs of all Pods");
            }
        }
        Err(error) => eprintln!("{error}"),
    }
    print_tails(&dir);
    eprintln!(
        "\nwhat the cluster's parts have logged is in {}, and what the API server knew and the Pods have logged in {}",
        logs.display(),
        dir.display()
    );
}

async fn save_all_logs(dir: &Path, client: &Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    match pods.list(&ListParams::default()).await {
        Ok(pods) => {
            for pod in pods {
                save_logs(dir, client, &pod).await;
            }
        }
        Err(error) => eprintln!("the Pods could not be listed: {error}"),
    }
}

async fn save_logs(dir: &Path, client: &Client, pod: &Pod) {
    let namespace = pod.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let containers = pod.spec.iter().flat_map(|spec| {
        let first = spec.init_containers.iter().flatten();
        first.chain(&spec.containers)
    });
    for container in containers {
        let params = LogParams {
            container: Some(container.name.clone()),
            ..LogParams::default()
        };
        let log = pods.logs(&pod.name_any(), &params).await;
        let log = log.unwrap_or_else(|error| format!("no log: {error}"));
        let name = format!("{namespace}_{}_{}.log", pod.name_any(), container.name);
        save(&dir.join(name), &log);
    }
}

/// The system's own Pods explain least, and are only saved.
fn print_tails(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut paths: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if name == "events.txt" || is_log && !name.starts_with("kube-system") {
            eprintln!("\n{}", LogTail::read(&path, LINES));
        }
    }
}

fn save(path: &Path, content: &str) {
    if let Err(error) = files::write(path, content) {
        eprintln!("{error}");
    }
}
