//! Releases for some namespaces: each serves its own with the rights that the chart grants. If two
//! releases want the same namespace, the second one is inactive.

use cluster::control_plane::pool::Loan;
use cluster::kubeconfig;
use cluster::wait::{Seen, eventually};
use ipu_jobs::Shared;
use ipu_operator::exposition::Metrics;
use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::scope::Conflicts;
use kube::Client;
use tests::documents::SCOPE;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::admin::Admin;
use super::{JOB, documents};
use crate::job_fixture::settings;
use crate::planes;

/// Name of every release. They differ in their namespace only.
const FULLNAME: &str = "scoped";

/// Installs a release for these namespaces.
fn install(admin: &Admin, namespaces: &str) {
    let names = format!("fullnameOverride={FULLNAME},watchNamespaces={{{namespaces}}}");
    // Nothing listens behind the webhooks here.
    let webhooks = "admissionWebhooks.scope=,admissionWebhooks.failurePolicy=Ignore";
    admin.helm_upgrade(&["--set", &names, "--set", webhooks]);
}

/// Admins of one API server, and the namespace of each.
async fn admins<const N: usize>(names: [&'static str; N]) -> (Loan, [Admin; N]) {
    let control_plane = planes::empty().await;
    let admins = names.map(|name| Admin::of(name, control_plane.kubeconfig()));
    for admin in &admins {
        admin.kubectl(&["create", "namespace", admin.name]).unwrap();
    }
    (control_plane, admins)
}

/// A client with exactly the rights of the controller of a release.
async fn as_controller(admin: &Admin) -> Client {
    let account = format!(
        "system:serviceaccount:{}:{FULLNAME}-controller-manager",
        admin.name
    );
    kubeconfig::client_as(&admin.kubeconfig, &account)
        .await
        .unwrap()
}

/// Whether a release that serves these namespaces is inactive, according to its controller.
async fn conflicts(admin: &Admin, namespaces: &str, stop: &CancellationToken) -> Conflicts {
    let release = ReleaseOptions {
        namespace: admin.name.to_owned(),
        fullname: FULLNAME.to_owned(),
        scope: namespaces.parse().unwrap(),
        webhook_configuration: Some(format!("{FULLNAME}.{}", admin.name)),
        ..ReleaseOptions::default()
    };
    let (metrics, watch) = Metrics::of_release(&release);
    tokio::spawn(watch.follow(as_controller(admin).await, stop.clone()));
    metrics.conflicts
}

/// Reconciles jobs of these namespaces with the rights of a release, until it is dropped.
async fn reconcile(admin: &Admin, namespaces: &str) -> DropGuard {
    let (client, stop) = (as_controller(admin).await, CancellationToken::new());
    let (mut settings, stopping) = (settings(), stop.clone());
    settings.scope = namespaces.parse().unwrap();
    tokio::spawn(async move {
        let metrics = Metrics::default().of_jobs();
        let run = ipu_jobs::run(client, settings, Shared::default(), &metrics, stopping);
        run.await.unwrap();
    });
    stop.drop_guard()
}

fn submit(admin: &Admin, namespace: &str) {
    let job = admin.file("job.yaml", JOB);
    let create = ["create", "--namespace", namespace, "--filename", &job];
    admin.kubectl(&create).unwrap();
}

/// Acts as the proxy: removes the finalizers of the IPUPartitions of a namespace that are being
/// deleted.
fn give_back(admin: &Admin, namespace: &str) {
    let deleted = "jsonpath={range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name} {end}";
    let listed = admin.kubectl(&["get", "ipupartitions", "--output", deleted]);
    let listed = listed.unwrap();
    let mine = listed
        .split_whitespace()
        .filter(|name| name.starts_with(namespace));
    for name in mine {
        let free = r#"{"metadata":{"finalizers":null}}"#;
        let patch = [
            "patch",
            "ipupartition",
            name,
            "--type=merge",
            "--patch",
            free,
        ];
        admin.kubectl(&patch).unwrap();
    }
}

/// Waits until the status of the job of a namespace contains this text.
async fn says(admin: &Admin, namespace: &str, text: &str) {
    let message = "jsonpath={.status.lastMessage}";
    let get = [
        "get",
        "ipujob",
        "job",
        "--namespace",
        namespace,
        "--output",
        message,
    ];
    eventually(
        &format!("the job in {namespace} says {text:?}"),
        async || Seen::when(admin.kubectl(&get).unwrap(), |said| said.contains(text)),
    )
    .await;
}

/// Checks that no release has touched the job of a namespace.
fn untouched(admin: &Admin, namespace: &str) {
    let get = ["get", "ipujob", "job", "--namespace", namespace];
    let shown = [
        &get[..],
        &["--output", "jsonpath={.metadata.finalizers}{.status}"],
    ]
    .concat();
    assert_eq!(
        admin.kubectl(&shown).unwrap(),
        r#"["ipu.finalizers.graphcore.ai"]"#
    );
}

/// Deletes the Roles of a namespace and then its job, in the order of the deletion of a namespace.
/// Waits until the job is gone.
async fn delete_without_roles(admin: &Admin, namespace: &str) {
    let of_namespace = ["--namespace", namespace];
    let roles = ["delete", "roles,rolebindings", "--all"];
    admin
        .kubectl(&[&roles, &of_namespace[..]].concat())
        .unwrap();
    let delete = ["delete", "ipujob", "job", "--wait=false"];
    admin
        .kubectl(&[&delete, &of_namespace[..]].concat())
        .unwrap();
    eventually("the job is deleted without the Role", async || {
        give_back(admin, namespace);
        let get = ["get", "ipujob", "job", "--ignore-not-found"];
        let found = admin.kubectl(&[&get, &of_namespace[..]].concat());
        Seen::when(found.unwrap(), String::is_empty)
    })
    .await;
}

/// Checks the rights of the controller of the release in `scope-one`, in its own namespace and in
/// others.
fn check_rights(admin: &Admin) {
    let account = "--as=system:serviceaccount:scope-one:scoped-controller-manager";
    let ask = |verb: &str, what: &str, namespace: &str| {
        let ask = ["auth", "can-i", verb, what, "--namespace", namespace];
        admin.kubectl(&[&ask, &[account][..]].concat())
    };
    for (verb, what) in [
        ("watch", "configmaps/scoped-log-level"),
        ("get", "configmaps/module-of-a-guest"),
    ] {
        assert_eq!(
            ask(verb, what, "scope-one").unwrap().trim(),
            "yes",
            "the account may not {verb} {what}"
        );
    }
    for (namespace, may) in [("scope-a", "yes"), ("scope-c", "no"), ("scope-one", "no")] {
        for what in ["pods", "roles", "serviceaccounts"] {
            // kubectl exits with 1 if the answer is no.
            let can = ask("create", what, namespace).is_ok_and(|answer| answer.trim() == "yes");
            assert_eq!(can, may == "yes", "right to create {what} in {namespace}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_release_serves_its_own_namespaces_with_rights_in_no_others() {
    let (_running, [one, two]) = admins(["scope-one", "scope-two"]).await;
    for namespace in ["scope-a", "scope-b", "scope-c", "scope-d"] {
        one.kubectl(&["create", "namespace", namespace]).unwrap();
    }
    install(&one, "scope-a,scope-b");
    install(&two, "scope-c");
    for namespace in ["scope-a", "scope-c", "scope-d"] {
        submit(&one, namespace);
    }
    let _first = reconcile(&one, "scope-a,scope-b").await;
    says(&one, "scope-a", "partition not ready yet!").await;
    // A namespace without jobs at the start of the watch.
    submit(&one, "scope-b");
    says(&one, "scope-b", "partition not ready yet!").await;
    untouched(&one, "scope-c");
    untouched(&one, "scope-d");

    let _second = reconcile(&two, "scope-c").await;
    says(&one, "scope-c", "partition not ready yet!").await;
    untouched(&one, "scope-d");

    delete_without_roles(&one, "scope-b").await;
    check_rights(&one);
}

#[tokio::test]
async fn the_document_does_what_it_says() {
    let (_running, [admin]) = admins(["scope-document"]).await;
    documents::run(&admin, &SCOPE);
    let of_two = [
        "get",
        "roles,clusterroles",
        "--all-namespaces",
        "--output=name",
    ];
    let ours = "--selector=app.kubernetes.io/part-of=ipu-operator";
    let found = admin.kubectl(&[&of_two[..], &[ours]].concat()).unwrap();
    for cluster_wide in ["controller-manager.ipu-a", "controller-manager.ipu-c"] {
        assert!(found.contains(cluster_wide), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_releases_for_one_namespace_the_second_is_inactive_until_the_first_is_gone() {
    let (_running, [first, second]) = admins(["rest-first", "rest-second"]).await;
    for namespace in ["rest-a", "rest-b", "rest-c"] {
        first.kubectl(&["create", "namespace", namespace]).unwrap();
    }
    install(&first, "rest-a,rest-b");
    // The API server's times are whole seconds. Within one second, the name decides.
    install(&second, "rest-b,rest-c");
    let stop = CancellationToken::new();
    let of_first = conflicts(&first, "rest-a,rest-b", &stop).await;
    let of_second = conflicts(&second, "rest-b,rest-c", &stop).await;
    of_first.wait_none().await;
    of_second.wait_any().await;
    let message = of_second.current()[0].message();
    for part in [
        "namespace rest-b",
        "in namespace rest-first",
        "scoped.rest-first",
    ] {
        assert!(message.contains(part), "{message}");
    }

    first.helm(&["uninstall", first.name]).unwrap();
    of_second.wait_none().await;
    assert_eq!(of_second.current(), []);
    stop.cancel();
}
