//! A release that Argo CD or Flux syncs, upgrades, rolls back and removes, while the operator
//! writes its own fields.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::argo_cd::ArgoCd;
use super::flux::Flux;
use super::{NAME, create_job, has_job, left, operate, owned, webhooks};
use crate::chart::admin::Admin;
use crate::chart::definitions::{OLD_SHORT_NAME, older_chart, short_name};
use crate::planes;

#[tokio::test]
async fn argo_cd_syncs_upgrades_rolls_back_and_removes_the_release() {
    let plane = planes::empty().await;
    let admin = Admin::of(NAME, plane.kubeconfig());
    let folder = tempfile::tempdir().unwrap();
    let older = older_chart(&admin, folder.path());
    let argo = ArgoCd::new(&admin, &json!({}));
    argo.sync(&older);
    let process = operate(&admin).await;
    owned(&admin, false).await;
    assert_eq!(argo.drift(&older), [""; 0]);

    create_job(&admin);
    let bundles = webhooks(&admin, "{.webhooks[*].clientConfig.caBundle}");
    for (chart, name) in [(admin.chart(), "ipj"), (&older, OLD_SHORT_NAME)] {
        assert!(!argo.drift(chart).is_empty(), "the CRD differs");
        argo.sync(chart);
        assert_eq!(short_name(&admin), name);
        assert_eq!(argo.drift(chart), [""; 0]);
        let kept = webhooks(&admin, "{.webhooks[*].clientConfig.caBundle}");
        assert_eq!(kept, bundles);
    }
    let versions = webhooks(&admin, "{.metadata.resourceVersion}");
    argo.sync(&older);
    assert_eq!(webhooks(&admin, "{.metadata.resourceVersion}"), versions);

    process.abort();
    argo.delete();
    assert_eq!(left(&admin), "");
    has_job(&admin);
}

#[tokio::test]
async fn argo_cd_prunes_objects_but_no_crd() {
    let plane = planes::empty().await;
    let admin = Admin::of(NAME, plane.kubeconfig());
    let dashboard = json!({ "metrics": { "dashboard": { "enabled": true } } });
    ArgoCd::new(&admin, &dashboard).sync(admin.chart());
    let dashboards = || {
        let labelled = "--selector=grafana_dashboard";
        let get = [
            "get",
            "configmaps",
            labelled,
            "--all-namespaces",
            "--output=name",
        ];
        admin.kubectl(&get).unwrap()
    };
    assert_eq!(dashboards().lines().count(), 1);
    let argo = ArgoCd::new(&admin, &json!({}));
    argo.sync(admin.chart());
    assert_eq!(dashboards(), "");

    // A source without CRDs, as after `skipCrds`.
    let folder = tempfile::tempdir().unwrap();
    let without = older_chart(&admin, folder.path());
    fs::remove_dir_all(Path::new(&without).join("crds")).unwrap();
    create_job(&admin);
    argo.sync(&without);
    assert_eq!(short_name(&admin), "ipj");
    has_job(&admin);
}

/// A release that Helm has installed has the Namespace as the owner of its webhooks. Argo CD would
/// leave them behind.
#[tokio::test]
async fn a_release_of_helm_that_moves_to_argo_cd_leaves_no_webhooks_behind() {
    let plane = planes::empty().await;
    let admin = Admin::of(NAME, plane.kubeconfig());
    let install = ["install", NAME, admin.chart(), "--create-namespace"];
    admin.helm(&install).unwrap();
    let process = operate(&admin).await;
    owned(&admin, true).await;
    let argo = ArgoCd::new(&admin, &json!({}));
    argo.sync(admin.chart());
    owned(&admin, false).await;
    assert_eq!(argo.drift(admin.chart()), [""; 0]);
    process.abort();
    argo.delete();
    assert_eq!(left(&admin), "");
}

#[tokio::test]
async fn flux_installs_upgrades_rolls_back_and_removes_the_release() {
    let plane = planes::empty().await;
    let mut admin = Admin::of(NAME, plane.kubeconfig());
    admin.helm = "helm-4";
    let folder = tempfile::tempdir().unwrap();
    let older = older_chart(&admin, folder.path());
    let flux = Flux::new(&admin);
    flux.reconcile(&older);
    let process = operate(&admin).await;
    owned(&admin, true).await;
    assert_eq!(flux.drift(), [""; 0]);
    create_job(&admin);

    flux.reconcile(admin.chart());
    assert_eq!(short_name(&admin), "ipj");
    assert_eq!(flux.drift(), [""; 0]);
    let scale = [
        "scale",
        "deployment/ipu-operator-vipu-proxy",
        "--replicas=1",
    ];
    admin
        .kubectl(&[&scale[..], &["--namespace", NAME]].concat())
        .unwrap();
    let drift = flux.drift();
    assert_eq!(drift.len(), 1, "{drift:?}");
    flux.roll_back();
    assert_eq!(flux.drift(), [""; 0]);
    assert_eq!(short_name(&admin), "ipj", "the newer CRDs stay");

    process.abort();
    flux.delete();
    assert_eq!(left(&admin), "");
    has_job(&admin);
}
