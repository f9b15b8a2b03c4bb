//! A client that behaves as the application controller of Argo CD: `gitops-engine`, `util/helm` and
//! `controller` of its repository are the model.

use serde_json::{Value, json};

use super::diff::{identity, items, predictions, stream, without_versions};
use super::{NAME, documents, object};
use crate::chart::admin::{Admin, KUBERNETES};

/// Field manager of every apply.
const MANAGER: &str = "argocd-controller";

/// Annotation by which Argo CD recognizes the objects of an Application.
const TRACKING: &str = "argocd.argoproj.io/tracking-id";

/// Argo CD with one Application.
pub(super) struct ArgoCd<'a> {
    admin: &'a Admin,
    application: Value,
}

impl<'a> ArgoCd<'a> {
    /// Argo CD with the Application of the file, which has these values in addition.
    pub(super) fn new(admin: &'a Admin, values: &Value) -> Self {
        let mut application = object("argo-cd.yaml", "Application");
        json_patch::merge(
            &mut application["spec"]["source"]["helm"]["valuesObject"],
            values,
        );
        let policy = &application["spec"]["syncPolicy"];
        assert_eq!(policy["automated"]["prune"], true);
        let options = ["CreateNamespace=true", "ServerSideApply=true"];
        assert_eq!(policy["syncOptions"], json!(options));
        let compare = &application["metadata"]["annotations"]["argocd.argoproj.io/compare-options"];
        assert_eq!(compare, "ServerSideDiff=true");
        assert_eq!(application["spec"].get("ignoreDifferences"), None);
        Self { admin, application }
    }

    /// Renders this chart. Hooks of Helm's tests have no phase in Argo CD, so it never applies
    /// them.
    fn targets(&self, chart: &str) -> Vec<Value> {
        let helm = &self.application["spec"]["source"]["helm"];
        let namespace = self.application["spec"]["destination"]["namespace"].as_str();
        assert_eq!(namespace, Some(self.admin.name));
        let values = helm["valuesObject"].to_string();
        let values = self.admin.file("values.yaml", &values);
        let release = helm["releaseName"].as_str().unwrap();
        let template = ["template", chart, "--name-template", release, "--values"];
        let rendered = [&template[..], &[&values, KUBERNETES, "--include-crds"]].concat();
        let rendered = documents(&self.admin.helm(&rendered).unwrap()).into_iter();
        let mut targets: Vec<Value> = rendered.filter(|target| !is_hook(target)).collect();
        // CRDs come before the kinds that need them.
        targets.sort_by_key(|target| !is_crd(target));
        for target in &mut targets {
            target["metadata"]["annotations"][TRACKING] = tracking_id(target).into();
        }
        targets
    }

    /// Applies the chart, and prunes what it no longer contains.
    pub(super) fn sync(&self, chart: &str) {
        let targets = self.targets(chart);
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.admin.name },
        });
        self.apply(&[namespace]);
        let (definitions, others): (Vec<_>, Vec<_>) = targets.iter().cloned().partition(is_crd);
        if !definitions.is_empty() {
            self.apply(&definitions);
            self.established(&definitions);
        }
        self.apply(&others);
        let targets: Vec<String> = targets.iter().map(identity).collect();
        for live in self.managed() {
            let is_kept =
                live["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false";
            if !targets.contains(&identity(&live)) && !is_kept {
                self.remove(&live);
            }
        }
    }

    /// Returns the objects that a sync of the chart would change, create or prune, with what it
    /// would make of them.
    pub(super) fn drift(&self, chart: &str) -> Vec<String> {
        let targets = self.targets(chart);
        let predictions = predictions(self.admin, MANAGER, &targets);
        let changed = predictions.into_iter().filter_map(|prediction| {
            let live = prediction.live.as_ref().map(without_versions);
            let predicted = without_versions(&prediction.predicted);
            (live.as_ref() != Some(&predicted))
                .then(|| format!("{}: {live:?} → {predicted}", prediction.name))
        });
        let mut drift: Vec<String> = changed.collect();
        let targets: Vec<String> = targets.iter().map(identity).collect();
        let extra = self.managed().into_iter().map(|live| identity(&live));
        drift.extend(extra.filter(|live| !targets.contains(live)));
        drift
    }

    /// Deletes the Application with its finalizer. CRDs and objects with an owner stay, and so does
    /// the Namespace.
    pub(super) fn delete(&self) {
        for live in self.managed() {
            let is_kept = live["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep";
            if !is_crd(&live) && !is_kept {
                self.remove(&live);
            }
        }
    }

    /// Returns the live objects of the Application that have no owner.
    fn managed(&self) -> Vec<Value> {
        let resources = ["api-resources", "--verbs=list,delete", "--output=name"];
        let kinds = self.admin.kubectl(&resources).unwrap();
        let kinds = kinds.lines().collect::<Vec<_>>().join(",");
        let get = ["get", &kinds, "--all-namespaces", "--output=json"];
        let live = items(&self.admin.kubectl(&get).unwrap()).into_iter();
        let managed = live.filter(|object| {
            let metadata = &object["metadata"];
            let is_tracked = metadata["annotations"][TRACKING] == tracking_id(object);
            is_tracked && metadata.get("ownerReferences").is_none()
        });
        managed.collect()
    }

    /// Waits until the API server serves the kinds of these CRDs.
    fn established(&self, definitions: &[Value]) {
        let names: Vec<String> = definitions.iter().map(name_of_crd).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let wait = ["wait", "--for=condition=Established", "--timeout=1m"];
        self.admin.kubectl(&[&wait[..], &names].concat()).unwrap();
    }

    fn apply(&self, targets: &[Value]) {
        let file = self.admin.file("targets.yaml", &stream(targets));
        let manager = format!("--field-manager={MANAGER}");
        let apply = ["apply", "--server-side", "--force-conflicts", &manager];
        let apply = [&apply[..], &["--filename", &file]].concat();
        self.admin.kubectl(&apply).unwrap();
    }

    /// Argo CD deletes in the foreground, which needs the garbage collector. The control planes of
    /// the tests have none.
    fn remove(&self, live: &Value) {
        let file = self.admin.file("removed.yaml", &live.to_string());
        let delete = ["delete", "--ignore-not-found", "--cascade=background"];
        let delete = [&delete[..], &["--wait=false", "--filename", &file]].concat();
        self.admin.kubectl(&delete).unwrap();
    }
}

fn is_hook(target: &Value) -> bool {
    let annotations = &target["metadata"]["annotations"];
    let hook = annotations["helm.sh/hook"].as_str();
    assert!(
        matches!(hook, None | Some("test")),
        "Argo CD runs the hook {hook:?}, which this client does not know"
    );
    hook.is_some()
}

fn is_crd(target: &Value) -> bool {
    target["kind"] == "CustomResourceDefinition"
}

fn name_of_crd(definition: &Value) -> String {
    let name = definition["metadata"]["name"].as_str();
    format!("customresourcedefinition/{}", name.unwrap())
}

/// The id names the object, so that a copy of the annotation on another object has no effect.
fn tracking_id(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let metadata = &object["metadata"];
    let [kind, namespace, name] =
        [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text);
    format!("{NAME}:{group}/{kind}:{namespace}/{name}")
}
