//! What explains a failure, saved before the cluster goes: logs of all Pods and what the API server
//! knows. The ends of the most telling ones are printed.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};

use super::{command, files, log_tail::LogTail, operator::Installed};

/// Lines of each log that are printed.
const LINES: usize = 12;

/// What kubectl is asked, and the file that its answer goes to.
const QUESTIONS: [(&str, &str); 3] = [
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

/// Saves and prints what explains a failure. What cannot be had is said, and the rest goes on.
pub async fn write(installed: &Installed) {
    let logs = installed.cluster.settings.logs();
    let dir = logs.join("failure");
    if let Err(error) = files::remove(&dir).and_then(|()| files::make_dir(&dir)) {
        eprintln!("{error}");
        return;
    }
    for (file, question) in QUESTIONS {
        let mut kubectl = installed.kubectl();
        let answer = command::output(kubectl.args(question.split_whitespace()));
        let answer = answer.unwrap_or_else(|error| error.to_string());
        save(&dir.join(file), &answer);
    }
    match installed.cluster.client().await {
        Ok(client) => save_all_logs(&dir, &client).await,
        Err(error) => eprintln!("{error}"),
    }
    print_tails(&dir);
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
