//! Pure: the policy of an audit, from a module or from an IPUPolicy.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use ipu_api::guest::digest::ModuleDigest;
use ipu_api::ipupolicy::{Hook, IPUPolicy, Match, ModuleSource};
use ipu_api::labels::OPERATOR_NAMESPACE;
use ipu_guest_host::Limits;
use ipu_policies::module_config::module_config;
use serde_json::Value;

use crate::document::is_yaml;

/// What an audit is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A component.
    Module(PathBuf),
    /// The manifest of an IPUPolicy.
    Manifest(PathBuf),
    /// The name of an IPUPolicy in the cluster.
    Policy(String),
}

/// The names of the resource, as kubectl takes them.
const RESOURCES: [&str; 3] = ["ipupolicy/", "ipupolicies/", "ipupol/"];

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = RESOURCES.iter().find_map(|start| text.strip_prefix(start));
        if let Some(name) = name {
            if !ipu_api::dns1123::is_subdomain(name) {
                return Err(format!(
                    "{name:?} is no name of an IPUPolicy; the form is ipupolicy/NAME"
                ));
            }
            return Ok(Self::Policy(name.to_owned()));
        }
        let file = PathBuf::from(text);
        let is_json = file
            .extension()
            .is_some_and(|extension| extension == "json");
        if is_json || is_yaml(&file) {
            return Ok(Self::Manifest(file));
        }
        Ok(Self::Module(file))
    }
}

/// A value is no IPUPolicy.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    #[error(
        "it has kind {kind:?} and apiVersion {api_version:?}; an IPUPolicy of graphcore.ai/v1alpha1 is expected"
    )]
    OtherKind { kind: String, api_version: String },
    #[error("at {path:?}: {source}")]
    Form {
        path: String,
        source: serde_json::Error,
    },
}

/// The component of a policy is not at hand, or is another one.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// It is in a ConfigMap.
    #[error(
        "the module of the IPUPolicy {policy} is in the ConfigMap {map}; write it to a file, and name the file with \
         --module: kubectl get configmap {map} --namespace <namespace of the release> --output \
         go-template='{{{{index .binaryData \"{key}\"}}}}' | base64 --decode > {key}"
    )]
    InConfigMap {
        /// Name of the policy.
        policy: String,
        /// Name of the ConfigMap.
        map: String,
        /// Key in it.
        key: String,
    },
    /// It is in a registry.
    #[error(
        "the module of the IPUPolicy {policy} is in a registry; pull it with `ipu-operator policy pull {reference} \
         --output module.wasm`, and name the file with --module"
    )]
    InRegistry {
        /// Name of the policy.
        policy: String,
        /// The reference.
        reference: String,
    },
    /// The policy names no source.
    #[error(
        "the IPUPolicy {0} has no spec.module.image, configMap or oci; name its module with --module"
    )]
    NoSource(String),
    /// The file has another digest than the policy demands.
    #[error(
        "{file} has the digest {found}, and the IPUPolicy {policy} demands {expected} (spec.module.digest); name the \
         right file with --module"
    )]
    OtherDigest {
        /// The file.
        file: PathBuf,
        /// Its digest.
        found: String,
        /// Name of the policy.
        policy: String,
        /// The digest in the policy.
        expected: String,
    },
}

/// The policy of an audit.
#[derive(Debug)]
pub(super) struct AuditedPolicy {
    /// Its name in messages.
    pub(super) name: String,
    /// Its hook. `None`: the exports of the component decide.
    pub(super) hook: Option<Hook>,
    /// The requests that the guest is called for. `None`: all.
    pub(super) selected: Option<Match>,
    /// Settings in JSON.
    pub(super) settings: String,
    /// Limits of a call.
    pub(super) limits: Limits,
    /// The namespace of the release that applies it, if it names one.
    pub(super) release: Option<String>,
    module: ModuleSource,
    file: Option<PathBuf>,
}

impl AuditedPolicy {
    /// The policy that would call a component for every request.
    pub(super) fn of_module(file: &Path) -> Self {
        let name = file.file_stem().unwrap_or_default();
        Self {
            name: name.to_string_lossy().into_owned(),
            hook: None,
            selected: None,
            settings: "{}".to_owned(),
            limits: Limits::for_authoring(),
            release: None,
            module: ModuleSource::default(),
            file: Some(file.to_owned()),
        }
    }

    /// Reads an IPUPolicy.
    pub(super) fn of_manifest(manifest: Value) -> Result<Self, ManifestError> {
        let text = |field: &str| manifest[field].as_str().unwrap_or_default().to_owned();
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        if kind != "IPUPolicy" || api_version != ipu_api::API_VERSION {
            return Err(ManifestError::OtherKind { kind, api_version });
        }
        let policy: IPUPolicy =
            serde_path_to_error::deserialize(manifest).map_err(|error| ManifestError::Form {
                path: error.path().to_string(),
                source: error.into_inner(),
            })?;
        let spec = policy.spec;
        let config = module_config(&spec);
        let mut labels = policy.metadata.labels.unwrap_or_default();
        Ok(Self {
            name: policy.metadata.name.unwrap_or_default(),
            hook: Some(spec.hook),
            selected: spec.match_,
            limits: config.limits(Limits::for_authoring()),
            release: labels.remove(OPERATOR_NAMESPACE),
            settings: config.settings,
            module: spec.module,
            file: None,
        })
    }

    /// Returns the file of the component: the given one, or that of the image in the folder of
    /// guests.
    pub(super) fn module_file(
        &self,
        given: Option<&Path>,
        guests_dir: &Path,
    ) -> Result<PathBuf, ModuleError> {
        if let Some(file) = given.or(self.file.as_deref()) {
            return Ok(file.to_owned());
        }
        let policy = self.name.clone();
        let ModuleSource {
            config_map,
            image,
            oci,
            ..
        } = self.module.clone();
        match (image, config_map, oci) {
            (Some(image), _, _) => Ok(guests_dir.join(image.file)),
            (None, Some(map), _) => Err(ModuleError::InConfigMap {
                policy,
                map: map.name,
                key: map.key,
            }),
            (None, None, Some(oci)) => Err(ModuleError::InRegistry {
                policy,
                reference: oci.reference,
            }),
            (None, None, None) => Err(ModuleError::NoSource(policy)),
        }
    }

    /// Checks that a file is the component that the policy demands.
    pub(super) fn check_digest(
        &self,
        found: &ModuleDigest,
        file: &Path,
    ) -> Result<(), ModuleError> {
        match &self.module.digest {
            Some(expected) if expected != found.as_str() => Err(ModuleError::OtherDigest {
                file: file.to_owned(),
                found: found.to_string(),
                policy: self.name.clone(),
                expected: expected.clone(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn policy(change: impl FnOnce(&mut Value)) -> Value {
        let mut policy = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
            "metadata": {"name": "rule"},
            "spec": {"hook": "Validation", "module": {"image": {"file": "validation.wasm"}}},
        });
        change(&mut policy);
        policy
    }

    #[test]
    fn a_word_is_a_component_a_manifest_or_a_name() {
        for (text, expected) in [
            ("rule.wasm", Target::Module("rule.wasm".into())),
            ("a/rule.yaml", Target::Manifest("a/rule.yaml".into())),
            ("rule.json", Target::Manifest("rule.json".into())),
            ("ipupolicy/rule.v1", Target::Policy("rule.v1".to_owned())),
            ("ipupol/rule", Target::Policy("rule".to_owned())),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["ipupolicy/", "ipupolicies/a b"] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains("ipupolicy/NAME"), "{error}");
        }
    }

    #[test]
    fn release_settings_match_and_limits_come_from_the_manifest() {
        let manifest = policy(|policy| {
            policy["metadata"]["labels"] = json!({"graphcore.ai/operator-namespace": "ipu-a"});
            policy["spec"]["settings"] = json!({"maxIpusPerJob": 4});
            policy["spec"]["match"] = json!({"objectSelector": {"matchLabels": {"a": "b"}}});
            policy["spec"]["limits"] = json!({"deadlineMilliseconds": 20, "memoryMebibytes": 2});
        });
        let read = AuditedPolicy::of_manifest(manifest).unwrap();
        assert_eq!(
            (&*read.name, read.release.as_deref()),
            ("rule", Some("ipu-a"))
        );
        assert_eq!(read.hook, Some(Hook::Validation));
        assert_eq!(read.settings, r#"{"maxIpusPerJob":4}"#);
        assert!(read.selected.unwrap().object_selector.is_some());
        assert_eq!(read.limits.deadline, Duration::from_millis(20));
        assert_eq!(read.limits.memory, 2 << 20);
    }

    #[test]
    fn limits_of_the_operator_are_upper_bounds() {
        let manifest = policy(|policy| {
            policy["spec"]["limits"] =
                json!({"memoryMebibytes": 1 << 20, "outputKibibytes": 1 << 30});
        });
        let read = AuditedPolicy::of_manifest(manifest).unwrap();
        let most = Limits::for_authoring();
        assert_eq!(
            (read.limits.memory, read.limits.output),
            (most.memory, most.output)
        );
    }

    #[test]
    fn another_object_is_no_policy() {
        let cases = [
            (
                policy(|policy| policy["kind"] = json!("IPUJob")),
                "\"IPUJob\"",
            ),
            (json!([]), "kind \"\""),
            (
                policy(|policy| policy["spec"]["hook"] = json!("Other")),
                "at \"spec.hook\"",
            ),
        ];
        for (manifest, expected) in cases {
            let error = AuditedPolicy::of_manifest(manifest)
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_component_comes_from_the_option_or_the_image() {
        let file = |module: Value, given: Option<&Path>| {
            let manifest = policy(|policy| policy["spec"]["module"] = module);
            let read = AuditedPolicy::of_manifest(manifest).unwrap();
            read.module_file(given, Path::new("/guests"))
        };
        let image = json!({"image": {"file": "validation.wasm"}});
        let map = json!({"configMap": {"name": "modules", "key": "rule.wasm"}});
        let oci = json!({"oci": {"reference": "registry.example.com/rule:1"}});
        let given = Path::new("rule.wasm");
        assert_eq!(
            file(image.clone(), None).unwrap(),
            Path::new("/guests/validation.wasm")
        );
        assert_eq!(file(image, Some(given)).unwrap(), given);
        assert_eq!(file(map.clone(), Some(given)).unwrap(), given);
        for (module, expected) in [
            (map, "'{{index .binaryData \"rule.wasm\"}}'"),
            (oci, "policy pull registry.example.com/rule:1"),
            (json!({}), "spec.module.image"),
        ] {
            let error = file(module, None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("--module"), "{error}");
        }
    }

    #[test]
    fn a_component_with_another_digest_is_refused() {
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let manifest = policy(|policy| policy["spec"]["module"]["digest"] = json!(digest("1")));
        let read = AuditedPolicy::of_manifest(manifest).unwrap();
        let check = |found: &str| read.check_digest(&ModuleDigest::new(found), Path::new("a.wasm"));
        check(&digest("1")).unwrap();
        let error = check(&digest("2")).unwrap_err().to_string();
        assert!(
            error.contains(&digest("1")) && error.contains("a.wasm"),
            "{error}"
        );
    }
}
