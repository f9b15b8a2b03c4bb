//! The cluster's DNS: Pods reach Services by name through it.

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Service, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::ClusterError;
use crate::images::COREDNS_IMAGE;
use crate::plan::DNS_IP;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "coredns";
const COREFILE: &str = "\
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa
    cache 5
}
";

/// Installs CoreDNS in the cluster.
pub(super) async fn apply(client: &Client) -> Result<(), ClusterError> {
    patch(&Api::<ClusterRole>::all(client.clone()), role()).await?;
    patch(
        &Api::<ClusterRoleBinding>::all(client.clone()),
        role_binding(),
    )
    .await?;
    namespaced::<ServiceAccount>(client, json!({"metadata": {"name": NAME}})).await?;
    let files = json!({"metadata": {"name": NAME}, "data": {"Corefile": COREFILE}});
    namespaced::<ConfigMap>(client, files).await?;
    namespaced::<Deployment>(client, deployment()).await?;
    namespaced::<Service>(client, service()).await
}

/// Whether a replica answers.
pub(super) async fn is_available(client: &Client) -> bool {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let status = deployments.get(NAME).await.ok().and_then(|d| d.status);
    status.and_then(|status| status.available_replicas) == Some(1)
}

async fn namespaced<K>(client: &Client, object: Value) -> Result<(), ClusterError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    patch(&Api::<K>::namespaced(client.clone(), NAMESPACE), object).await
}

async fn patch<K>(api: &Api<K>, mut object: Value) -> Result<(), ClusterError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    let name = object["metadata"]["name"]
        .as_str()
        .unwrap_or(NAME)
        .to_owned();
    api.patch(
        &name,
        &PatchParams::apply("harness").force(),
        &Patch::Apply(object),
    )
    .await
    .map(drop)
    .map_err(|source| ClusterError::Api {
        action: "put CoreDNS into the cluster",
        source: Box::new(source),
    })
}

fn role() -> Value {
    let verbs = ["list", "watch"];
    json!({
        "metadata": {"name": "system:coredns"},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": verbs},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
        ],
    })
}

fn role_binding() -> Value {
    json!({
        "metadata": {"name": "system:coredns"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:coredns",
        },
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    })
}

fn deployment() -> Value {
    let labels = json!({"k8s-app": "kube-dns"});
    json!({
        "metadata": {"name": NAME, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": NAME,
                    "dnsPolicy": "Default",
                    "terminationGracePeriodSeconds": 2,
                    "containers": [{
                        "name": NAME,
                        "image": COREDNS_IMAGE,
                        "imagePullPolicy": "Never",
                        "args": ["-conf", "/etc/coredns/Corefile"],
                        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
                        "readinessProbe": {
                            "httpGet": {"path": "/ready", "port": 8181},
                            "periodSeconds": 1,
                        },
                    }],
                    "volumes": [{"name": "config", "configMap": {"name": NAME}}],
                },
            },
        },
    })
}

fn service() -> Value {
    json!({
        "metadata": {"name": "kube-dns"},
        "spec": {
            "clusterIP": DNS_IP,
            "selector": {"k8s-app": "kube-dns"},
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
        },
    })
}
