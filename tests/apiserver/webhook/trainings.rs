//! The trainings of `examples/train`: a cluster accepts each manifest as it stands.

use cluster::definitions;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use release::guests::checkout;
use serde_json::Value;

use super::fixture::Webhooks;
use crate::chart::admin::Admin;

/// The lines of `kubectl apply`, sorted.
const ACCEPTED: [&str; 10] = [
    "configmap/ipu-exporter created (server dry run)",
    "configmap/training created (server dry run)",
    "deployment.apps/notebook created (server dry run)",
    "ipujob.graphcore.ai/measured created (server dry run)",
    "ipujob.graphcore.ai/mnist created (server dry run)",
    "ipujob.graphcore.ai/poprun created (server dry run)",
    "ipujob.graphcore.ai/poprun-workers created (server dry run)",
    "jobset.jobset.x-k8s.io/rates created (server dry run)",
    "persistentvolumeclaim/training created (server dry run)",
    "service/notebook created (server dry run)",
];

#[tokio::test]
async fn trainings_are_accepted_as_they_stand() {
    let webhooks = Webhooks::start().await;
    let admin = Admin::of("default", webhooks.kubeconfig());
    let settings = Settings::from_env().unwrap();
    Tools::fetch_some(&settings, &Progress::start(), &["jobset"]).unwrap();
    let jobset = Tools::source(&settings, "jobset").unwrap();
    let definitions_of_jobset = jobset.join("charts/jobset/crds");
    let definitions_of_jobset = definitions_of_jobset.to_str().unwrap();
    let create = ["create", "--filename", definitions_of_jobset];
    admin.kubectl(&create).unwrap();
    definitions::once_served(&webhooks.client()).await;

    let folder = checkout().join("examples/train");
    let apply = ["apply", "--dry-run=server", "--filename"];
    let apply = [&apply[..], &[folder.to_str().unwrap()]].concat();
    let said = admin.kubectl(&apply).unwrap();
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ACCEPTED);

    for file in ["mnist.yaml", "poprun.yaml", "poprun-workers.yaml"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let job: Value = serde_saphyr::from_str(&text).unwrap();
        let warnings = webhooks.create_dry(&job).await.unwrap().warnings;
        assert_eq!(warnings, Vec::<String>::new(), "{file}");
    }
}
