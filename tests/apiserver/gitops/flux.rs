//! A client that behaves as the helm-controller of Flux: Helm, the policy of CRDs, and the drift
//! detection of `fluxcd/pkg/ssa/jsondiff`, which is the model.

use serde_json::{Value, json};

use super::diff::{Prediction, items, predictions, stream};
use super::{documents, object};
use crate::chart::admin::Admin;

/// Field manager of every apply.
const MANAGER: &str = "helm-controller";

/// Flux with one HelmRelease. Its helm-controller contains Helm 4.
pub(super) struct Flux<'a> {
    admin: &'a Admin,
    spec: Value,
}

impl<'a> Flux<'a> {
    /// Flux with the HelmRelease of the file.
    pub(super) fn new(admin: &'a Admin) -> Self {
        let spec = object("flux.yaml", "HelmRelease")["spec"].clone();
        assert_eq!(spec["releaseName"], admin.name);
        assert_eq!(spec["driftDetection"], json!({ "mode": "enabled" }));
        Self { admin, spec }
    }

    /// Applies the Namespace of the file, then installs or upgrades the release with this chart.
    pub(super) fn reconcile(&self, chart: &str) {
        self.apply(&[object("flux.yaml", "Namespace")]);
        let is_installed = self.admin.helm(&["status", self.admin.name]).is_ok();
        let action = if is_installed { "upgrade" } else { "install" };
        assert_eq!(self.spec[action]["crds"], "CreateReplace");
        let definitions = self.admin.helm(&["show", "crds", chart]).unwrap();
        self.apply(&documents(&definitions));
        let values = self.spec["values"].to_string();
        let values = self.admin.file("values.yaml", &values);
        let upgrade = ["upgrade", "--install", self.admin.name, chart];
        let options = [
            "--skip-crds",
            "--server-side=true",
            "--force-conflicts",
            "--values",
            &values,
        ];
        let upgrade = [&upgrade[..], &options].concat();
        self.admin.helm(&upgrade).unwrap();
    }

    /// Returns the objects that differ from the manifest of the release, with what Flux would write
    /// back.
    pub(super) fn drift(&self) -> Vec<String> {
        let manifest = self.admin.helm(&["get", "manifest", self.admin.name]);
        let mut manifests = documents(&manifest.unwrap());
        for manifest in &mut manifests {
            let annotations = &mut manifest["metadata"]["annotations"];
            annotations["meta.helm.sh/release-name"] = self.admin.name.into();
            annotations["meta.helm.sh/release-namespace"] = self.admin.name.into();
        }
        let predictions = predictions(self.admin, MANAGER, &manifests);
        predictions.iter().filter_map(difference).collect()
    }

    /// Returns to the previous release, as the remediation of a failed upgrade does.
    pub(super) fn roll_back(&self) {
        let upgrade = &self.spec["upgrade"];
        assert_eq!(upgrade["remediation"]["strategy"], "rollback");
        self.admin
            .helm(&[
                "rollback",
                self.admin.name,
                "--server-side=true",
                "--force-conflicts",
            ])
            .unwrap();
    }

    /// Deletes the HelmRelease, whose finalizer uninstalls the release.
    pub(super) fn delete(&self) {
        self.admin.helm(&["uninstall", self.admin.name]).unwrap();
    }

    fn apply(&self, manifests: &[Value]) {
        let file = self.admin.file("manifests.yaml", &stream(manifests));
        let manager = format!("--field-manager={MANAGER}");
        let apply = ["apply", "--server-side", "--force-conflicts", &manager];
        let apply = [&apply[..], &["--filename", &file, "--output=json"]].concat();
        let applied = items(&self.admin.kubectl(&apply).unwrap());
        assert_eq!(applied.len(), manifests.len());
    }
}

/// Flux compares labels and annotations that the manifest has, and all fields but `metadata` and
/// `status`.
fn difference(prediction: &Prediction) -> Option<String> {
    let Prediction {
        name,
        live,
        predicted,
    } = prediction;
    let Some(live) = live else {
        return Some(format!("{name}: missing"));
    };
    let wanted = ["labels", "annotations"].into_iter().flat_map(|map| {
        let wanted = predicted["metadata"][map].as_object();
        wanted.into_iter().flatten().map(move |entry| (map, entry))
    });
    let mut wanted = wanted.map(|(map, (key, value))| (map, key, value));
    let changed = wanted.find(|(map, key, value)| live["metadata"][map].get(key) != Some(value));
    if let Some((map, key, value)) = changed {
        return Some(format!("{name}: {map} {key} → {value}"));
    }
    let body = |object: &Value| {
        let mut object = object.clone();
        let fields = object.as_object_mut().unwrap();
        fields.remove("metadata");
        fields.remove("status");
        object
    };
    let (live, predicted) = (body(live), body(predicted));
    (live != predicted).then(|| format!("{name}: {live} → {predicted}"))
}
