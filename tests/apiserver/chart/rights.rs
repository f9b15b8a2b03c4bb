//! The rights that the chart grants to the operator's processes: the API server confirms those that
//! they need, and denies others.

use cluster::wait::eventually;

use super::admin::{Admin, KUBERNETES};
use crate::node_checks::network_definition;

/// The controller, by the last part of the name of its ServiceAccount.
const CONTROLLER: &str = "controller-manager";

/// The proxy, likewise.
const PROXY: &str = "vipu-proxy";

/// The process that issues certificates, likewise.
const CERTIFICATES: &str = "certificates";

/// A right that a process may or may not have: verb, object, namespace, and the expected answer.
type Right<'a> = (&'a str, &'a str, &'a str, bool);

/// Rights of the controller on the objects of jobs.
const CONTROLLER_ON_JOBS: [Right<'static>; 11] = [
    ("update", "ipujobs --subresource=status", "team", true),
    ("create", "ipujobs", "team", false),
    ("create", "ipupartitions", "", true),
    ("patch", "ipupartitions --subresource=status", "", false),
    ("create", "pods", "team", true),
    ("patch", "pods --subresource=status", "team", true),
    ("update", "pods --subresource=status", "team", false),
    ("create", "pods --subresource=exec", "team", true),
    ("get", "vipucontrollers", "", false),
    ("list", "events", "team", true),
    ("watch", "events", "team", false),
];

/// Rights of the proxy on the objects of jobs, partitions and nodes.
const PROXY_ON_PARTITIONS: [Right<'static>; 16] = [
    ("patch", "ipupartitions --subresource=status", "", true),
    ("create", "ipupartitions", "", true),
    ("delete", "vipucontrollers", "", true),
    ("update", "vipucontrollers", "", false),
    ("patch", "ipuaccountings", "", true),
    ("watch", "ipuaccountings", "", false),
    ("delete", "ipuaccountings", "", false),
    ("watch", "nodes", "", true),
    ("get", "nodes", "", false),
    ("list", "pods", "team", true),
    ("watch", "pods", "team", true),
    ("create", "pods", "team", false),
    ("patch", "nodes --subresource=status", "", true),
    ("patch", "nodes", "", false),
    ("patch", "ipujobs", "team", false),
    ("get", "namespaces/kube-system", "", true),
];

#[tokio::test]
async fn the_rights_are_sufficient_and_minimal() {
    let admin = Admin::new("chart-rights").await;
    admin.helm_upgrade(&[]);
    check_rights(&admin, CONTROLLER, &CONTROLLER_ON_JOBS);
    check_controller_in_own_namespace(&admin);
    check_controller_in_cluster(&admin);
    check_rights(&admin, PROXY, &PROXY_ON_PARTITIONS);
    check_proxy_in_own_namespace(&admin);
    check_rest_rights(&admin);
    check_rights_on_namespaces(&admin);
    check_certificates(&admin);
}

/// Rights of the controller on Secrets, Leases and ConfigMaps.
fn check_controller_in_own_namespace(admin: &Admin) {
    let secret = format!("secrets/{}-admission", admin.name);
    let cases = [
        ("get", secret.as_str(), admin.name, true),
        ("update", &secret, admin.name, false),
        ("create", "secrets", admin.name, false),
        ("update", "leases", admin.name, true),
        ("list", "secrets", admin.name, false),
        ("get", "configmaps", "team", true),
        ("create", "configmaps", "team", true),
        ("patch", "configmaps", "team", false),
        ("list", "configmaps", "team", false),
        ("get", "configmaps", admin.name, true),
        ("get", &secret, "kube-system", false),
    ];
    check_rights(admin, CONTROLLER, &cases);
}

/// Rights of the controller on objects that belong to no namespace, or in all namespaces.
fn check_controller_in_cluster(admin: &Admin) {
    let own_webhooks = format!("mutatingwebhookconfigurations/{}", admin.name);
    let own_namespace = format!("namespaces/{}", admin.name);
    let cases = [
        ("patch", own_webhooks.as_str(), "", false),
        ("watch", "mutatingwebhookconfigurations", "", true),
        ("list", "validatingwebhookconfigurations", "", false),
        ("get", &own_namespace, "", false),
        ("get", "namespaces/kube-system", "", false),
        ("get", "nodes", "", true),
        ("list", "nodes", "", false),
        ("create", "clusterroles", "", false),
        ("escalate", "roles", "team", false),
        ("watch", "serviceaccounts", "", true),
        ("watch", "roles", "", true),
        ("watch", "rolebindings", "", true),
        ("watch", "secrets", "", false),
    ];
    check_rights(admin, CONTROLLER, &cases);
}

/// Rights of the proxy on Leases, Secrets and ConfigMaps.
fn check_proxy_in_own_namespace(admin: &Admin) {
    let own_lease = format!("leases/{}-vipu-proxy", admin.name);
    let tracker = "configmaps/ipu-partitions-tracker";
    let cases = [
        ("update", own_lease.as_str(), admin.name, true),
        ("update", "leases/other", admin.name, false),
        ("get", "secrets", admin.name, false),
        ("patch", tracker, admin.name, true),
        ("patch", "configmaps/other", admin.name, false),
    ];
    check_rights(admin, PROXY, &cases);
}

/// The rights for the proxy's port with TLS: its own certificate, and reviews of tokens.
fn check_rest_rights(admin: &Admin) {
    let secret = format!("secrets/{}-admission", admin.name);
    let tls = format!("secrets/{}-vipu-proxy-tls", admin.name);
    let of_proxy = [
        ("create", "tokenreviews", "", true),
        ("create", "subjectaccessreviews", "", true),
        ("create", "secrets", admin.name, false),
        ("get", tls.as_str(), admin.name, true),
        ("update", &tls, admin.name, false),
        ("delete", &tls, admin.name, false),
        ("get", &tls, "kube-system", false),
        ("get", &secret, admin.name, false),
    ];
    check_rights(admin, PROXY, &of_proxy);
    check_rights(
        admin,
        CONTROLLER,
        &[("get", tls.as_str(), admin.name, false)],
    );
}

/// Policies read the labels of namespaces.
fn check_rights_on_namespaces(admin: &Admin) {
    for process in [CONTROLLER, PROXY] {
        let watch = ("watch", "namespaces", "", true);
        check_rights(admin, process, &[watch, ("patch", "namespaces", "", false)]);
    }
}

/// Asks the API server whether a process has each right.
fn check_rights(admin: &Admin, process: &str, cases: &[Right<'_>]) {
    for &(verb, what, namespace, expected) in cases {
        let account = admin.account(process);
        let ask = ["auth", "can-i", "--namespace", namespace, &account, verb];
        let ask: Vec<&str> = ask.into_iter().chain(what.split(' ')).collect();
        // kubectl exits with 1 if the answer is no.
        let can = admin
            .kubectl(&ask)
            .is_ok_and(|answer| answer.trim() == "yes");
        assert_eq!(
            can, expected,
            "may {process} {verb} {what} in {namespace:?}?"
        );
    }
}

#[tokio::test]
async fn the_controller_reads_the_policy_of_launchers_if_they_share_rights() {
    let admin = Admin::new("chart-launchers").await;
    for (value, expected) in [("true", true), ("false", false)] {
        admin.helm_upgrade(&["--set", &format!("launcher.sharedRights={value}")]);
        for kind in ["policies", "policybindings"] {
            let kind = format!("validatingadmission{kind}");
            let own = format!("{kind}/{0}-launchers.{0}", admin.name);
            let cases = [
                ("get", own.as_str(), "", expected),
                ("patch", &own, "", false),
                ("list", &kind, "", false),
            ];
            check_rights(&admin, CONTROLLER, &cases);
            // Launchers that run need it until their end.
            admin.kubectl(&["get", &own]).unwrap();
        }
    }
    admin.helm(&["uninstall", admin.name]).unwrap();
    let own = format!("{0}-launchers.{0}", admin.name);
    admin
        .kubectl(&["get", "validatingadmissionpolicies", &own])
        .unwrap();
    // The next installation takes it over.
    admin.helm_upgrade(&["--set", "launcher.sharedRights=true"]);
}

#[tokio::test]
async fn the_checks_of_nodes_read_them_and_write_their_status() {
    let admin = Admin::new("chart-node-rights").await;
    let values = "ipuNode.enabled=true,ipuNode.networkAttachmentDefinitions={team/rdma-net}";
    admin.helm_upgrade(&["--set", values]);
    let networks = "network-attachment-definitions.k8s.cni.cncf.io";
    // kubectl asks about a kind that the API server serves.
    let definition = admin.file("definition.json", &network_definition().to_string());
    admin
        .kubectl(&["create", "--filename", &definition])
        .unwrap();
    eventually("the networks are served", async || {
        admin.kubectl(&["get", networks, "--all-namespaces"])
    })
    .await;
    let own = format!("{networks}/rdma-net");
    let cases = [
        ("get", "nodes", "", true),
        ("list", "nodes", "", false),
        ("patch", "nodes --subresource=status", "", true),
        ("update", "nodes --subresource=status", "", false),
        ("patch", "nodes", "", false),
        ("get", own.as_str(), "team", true),
        ("get", networks, "team", false),
        ("create", "events.events.k8s.io", "default", true),
        ("create", "events.events.k8s.io", "team", false),
        ("get", "secrets", admin.name, false),
        ("get", "pods", admin.name, false),
        ("create", "pods", admin.name, false),
    ];
    check_rights(&admin, "node", &cases);
}

/// Rights of the process that issues certificates. They concern objects of the release only, and
/// none of a user.
fn check_certificates(admin: &Admin) {
    let secrets = [
        "admission",
        "controller-manager-metrics-tls",
        "vipu-proxy-tls",
    ];
    for secret in secrets.map(|suffix| format!("secrets/{}-{suffix}", admin.name)) {
        let cases = [
            ("get", secret.as_str(), admin.name, true),
            ("update", &secret, admin.name, true),
            ("delete", &secret, admin.name, false),
            ("get", &secret, "kube-system", false),
        ];
        check_rights(admin, CERTIFICATES, &cases);
    }
    let own_namespace = format!("namespaces/{}", admin.name);
    let cases = [
        ("create", "secrets", admin.name, true),
        ("create", "secrets", "team", false),
        ("list", "secrets", admin.name, false),
        ("get", &own_namespace, "", true),
        ("get", "namespaces/kube-system", "", false),
        ("get", "ipujobs", "team", false),
        ("get", "pods", admin.name, false),
        ("create", "pods", admin.name, false),
        ("get", "configmaps", admin.name, false),
        ("list", "mutatingwebhookconfigurations", "", false),
    ];
    check_rights(admin, CERTIFICATES, &cases);
}

/// Asks whether each process may change the webhook configurations: those of this name, and others.
fn check_webhook_rights(admin: &Admin, configuration: &str, may_patch: bool, may_delete: bool) {
    for (process, may_patch, may_delete) in [
        (CONTROLLER, false, false),
        (PROXY, false, false),
        (CERTIFICATES, may_patch, may_delete),
    ] {
        check_webhook_rights_of(admin, process, configuration, (may_patch, may_delete));
    }
}

fn check_webhook_rights_of(
    admin: &Admin,
    process: &str,
    configuration: &str,
    (may_patch, may_delete): (bool, bool),
) {
    for kind in ["mutating", "validating"] {
        let own = format!("{kind}webhookconfigurations/{configuration}");
        let all = format!("{kind}webhookconfigurations");
        let cases = [
            ("patch", own.as_str(), "", may_patch),
            ("delete", &own, "", may_delete),
            ("update", &own, "", false),
            ("patch", &all, "", false),
            ("delete", &all, "", false),
            ("create", &all, "", false),
        ];
        check_rights(admin, process, &cases);
    }
}

#[tokio::test]
async fn only_the_process_of_the_certificates_may_patch_webhook_configurations() {
    let admin = Admin::new("chart-webhook-rights").await;
    let name = format!("fullnameOverride={}", admin.name);
    let given = "certificates.source=given,certificates.given.webhookSecretName=mine,\
                 certificates.given.proxySecretName=mine";
    let with_ca = format!("{given},certificates.given.webhookCaBundle=-----BEGIN CERTIFICATE-----");
    for (values, may_patch, may_delete) in [
        ("certificates.source=operator", true, true),
        ("admissionWebhooks.ownedByNamespace=false", true, false),
        (given, true, true),
        (&with_ca, false, false),
    ] {
        // An upgrade removes the rights of the values before.
        let upgrade = ["upgrade", "--install", admin.name, admin.chart()];
        let values = ["--set", &name, "--set", values];
        admin.helm(&[&upgrade[..], &values].concat()).unwrap();
        check_webhook_rights(&admin, admin.name, may_patch, may_delete);
    }
    let scoped = ["upgrade", admin.name, admin.chart(), "--set", &name];
    let scoped = [&scoped[..], &["--set", "watchNamespaces=default"]].concat();
    admin.helm(&scoped).unwrap();
    let configuration = format!("{0}.{0}", admin.name);
    check_webhook_rights(&admin, &configuration, true, true);
}

#[tokio::test]
async fn with_cert_manager_no_process_may_patch_webhook_configurations() {
    let admin = Admin::new("chart-cert-manager-rights").await;
    let name = format!("fullnameOverride={}", admin.name);
    let render = ["template", admin.name, admin.chart(), KUBERNETES];
    let values = "certificates.source=certManager,certificates.certManager.issuerRef.name=ca";
    let rendered = admin.helm(&[&render[..], &["--set", &name, "--set", values]].concat());
    // The API server does not know the objects of cert-manager.
    let rendered = rendered.unwrap();
    let documents = rendered.split("\n---\n");
    let rights: Vec<&str> = documents
        .filter(|document| document.contains("apiVersion: rbac.authorization.k8s.io/"))
        .collect();
    let file = admin.file("rights.yaml", &rights.join("\n---\n"));
    admin.kubectl(&["apply", "--filename", &file]).unwrap();
    check_webhook_rights(&admin, admin.name, false, false);
}

#[tokio::test]
async fn the_controller_grants_launchers_their_rights_and_no_others() {
    let admin = Admin::new("chart-grants").await;
    admin.helm_upgrade(&[]);
    let operator = admin.account(CONTROLLER);
    let grant = |name: &str, verb: &str, resource: &str| {
        let (verb, resource) = (format!("--verb={verb}"), format!("--resource={resource}"));
        let role = [
            "create",
            "role",
            name,
            &verb,
            &resource,
            "--resource-name=job-worker-0",
        ];
        admin.kubectl(&[&role, &["--namespace", admin.name, &operator][..]].concat())
    };
    grant("exec", "get,create", "pods/exec").unwrap();
    grant("pods", "get", "pods").unwrap();
    let refused = grant("secrets", "get", "secrets").unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("attempting to grant RBAC permissions"),
        "{refused}"
    );
}
