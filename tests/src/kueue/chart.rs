//! The objects of Kueue's own chart, adapted to a manager that runs as a process beside the API
//! server.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{KueueError, NAMESPACE, RELEASE};
use cluster::command;

/// Kinds of the chart that the process does not need: no node runs Pods, and the process serves no
/// API.
const LEFT_OUT: [&str; 2] = ["Deployment", "APIService"];

/// The output of Helm for the chart.
pub(super) struct Rendered {
    /// Its objects, without the kinds in `LEFT_OUT`.
    pub(super) objects: Vec<Value>,
    /// The manager's Configuration, with the names of the chart's objects.
    pub(super) configuration: String,
}

/// Renders the chart with this Configuration. The API server calls the webhooks at this port: the
/// addresses of Services lead to this machine, so the port of the Service is the manager's own.
pub(super) fn render(
    helm: &Path,
    chart: &Path,
    configuration: &Path,
    webhook: u16,
) -> Result<Rendered, KueueError> {
    let ports = json!([{"port": webhook, "targetPort": webhook, "protocol": "TCP"}]);
    let home = tempfile::tempdir().map_err(KueueError::Start)?;
    let mut template = Command::new(helm);
    template
        .args(["template", RELEASE])
        .arg(chart)
        .args(["--namespace", NAMESPACE])
        .arg(set_configuration(configuration))
        .arg(format!("--set-json=webhookService.ports={ports}"))
        .env("HOME", home.path());
    let text = command::output(&mut template).map_err(|source| KueueError::Command {
        action: "render Kueue's chart",
        source,
    })?;
    fitted(&text, webhook)
}

/// The option of Helm that sets the Configuration of the chart.
pub(super) fn set_configuration(file: &Path) -> String {
    let file = file.display();
    format!("--set-file=managerConfig.controllerManagerConfigYaml={file}")
}

fn fitted(text: &str, webhook: u16) -> Result<Rendered, KueueError> {
    let mut rendered = Rendered {
        objects: Vec::new(),
        configuration: String::new(),
    };
    // A separate line, because texts of the CRDs contain the separator too.
    let text = format!("\n{text}");
    let documents = text.split("\n---\n").filter(|text| text.contains("kind:"));
    for document in documents {
        let mut object: Value = serde_saphyr::from_str(document).map_err(KueueError::Yaml)?;
        let kind = object["kind"].as_str().unwrap_or_default();
        if LEFT_OUT.contains(&kind) {
            continue;
        }
        if let Some(found) = object["data"]["controller_manager_config.yaml"].as_str() {
            found.clone_into(&mut rendered.configuration);
        }
        reach(&mut object, webhook);
        rendered.objects.push(object);
    }
    Ok(rendered)
}

/// Makes the API server call the webhooks of an object at this port.
fn reach(object: &mut Value, port: u16) {
    let in_service = |clients: &mut Value| {
        if let Some(service) = clients.pointer_mut("/clientConfig/service") {
            service["port"] = json!(port);
        }
    };
    if let Some(conversion) = object.pointer_mut("/spec/conversion/webhook") {
        in_service(conversion);
    }
    if let Some(webhooks) = object.get_mut("webhooks").and_then(Value::as_array_mut) {
        webhooks.iter_mut().for_each(in_service);
        // The chart also sets a namespace on cluster-scoped objects.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = r"---
# Source: kueue/templates/map/manifests.yaml
---
# Source: a
apiVersion: v1
kind: ConfigMap
data:
  controller_manager_config.yaml: |
    namespace: kueue-system
---
kind: Deployment
---
kind: MutatingWebhookConfiguration
metadata: { name: a, namespace: kueue-system }
webhooks:
- clientConfig: { service: { name: a, path: /a } }
- clientConfig: { service: { name: a, path: /b } }
---
kind: CustomResourceDefinition
spec: { conversion: { webhook: { clientConfig: { service: { name: a } } } } }
";

    #[test]
    fn every_webhook_is_called_at_the_port_of_the_process() {
        let rendered = fitted(RENDERED, 7).unwrap();
        assert_eq!(rendered.configuration, "namespace: kueue-system\n");
        let kinds: Vec<_> = rendered.objects.iter().map(|one| &one["kind"]).collect();
        let expected = [
            "ConfigMap",
            "MutatingWebhookConfiguration",
            "CustomResourceDefinition",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(rendered.objects[1]["metadata"], json!({"name": "a"}));
        for index in [0, 1] {
            let webhook = &rendered.objects[1]["webhooks"][index];
            assert_eq!(webhook["clientConfig"]["service"]["port"], 7);
        }
        let conversion = rendered.objects[2].pointer("/spec/conversion/webhook");
        assert_eq!(conversion.unwrap()["clientConfig"]["service"]["port"], 7);
    }
}
