//! The source of an IPUPolicy's module, and its required signature.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Digest and source of a module. Exactly one source must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleSource {
    /// Digest of the component: `sha256:` and 64 hexadecimal digits. The operator loads no
    /// component with another digest. It may be missing only with `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// A key under `binaryData` of a ConfigMap in the namespace of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapModule>,
    /// A file in the folder of guests in the operator's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageModule>,
    /// An artefact in an OCI registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciModule>,
}

/// A module in a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapModule {
    /// Name of the ConfigMap, in the namespace of the release.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key under `binaryData`. If the chart's value `policies.requiredKeys` demands a signature, it
    /// has this key and `.sig`.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A module in the operator's image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageModule {
    /// Name of the file, such as `serial-walk.wasm`.
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$"))]
    pub file: String,
}

/// A module in an OCI registry: an artefact with one component, as `ipu-operator policy push`
/// creates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciModule {
    /// Reference of the artefact: the host of the registry, the repository, and a tag or the digest
    /// of the manifest, such as `registry.example.com/team/policy:1.2`.
    #[schemars(length(min = 1, max = 512))]
    pub reference: String,
    /// A Secret of the type `kubernetes.io/dockerconfigjson` in the namespace of the release, with
    /// user and password. The chart's value `policies.secrets` must also name it. Missing: the
    /// registry is accessed anonymously.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<SecretName>,
    /// CAs that verify the registry's certificate, instead of the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authorities: Option<PemSource>,
    /// Whether the registry is accessed without TLS. Credentials and modules are then not
    /// encrypted. `digest` is still verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_http: bool,
    /// Required signature of the module. Missing: none is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<RequiredSignature>,
}

/// A Secret in the namespace of the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretName {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Required signature of a module, made with `cosign sign --key`. Keyless signatures (by
/// certificates) are not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequiredSignature {
    /// Public keys: ECDSA on P-256, Ed25519 or RSA. A signature by one of them is sufficient. They
    /// count for earlier versions too: what a removed key signed is not called after a minute.
    #[schemars(length(min = 1, max = 8))]
    pub keys: Vec<PemSource>,
}

/// Source of a text in PEM. Exactly one must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PemSource {
    /// The text itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    pub pem: Option<String>,
    /// A key of a ConfigMap in the namespace of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<KeyOf>,
    /// A key of a Secret in the namespace of the release. The chart's value `policies.secrets` must
    /// also name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyOf>,
}

/// A key of a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyOf {
    /// Name of the ConfigMap or Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}
