//! Where the module of an IPUPolicy comes from, and by whom it must be signed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a module comes from: exactly one place, and which module it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleSource {
    /// `sha256:` and 64 hexadecimal digits of the component. Nothing else is loaded, whatever the
    /// source holds. Only for `image` it may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// A key under `binaryData` of a ConfigMap in the namespace of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapModule>,
    /// A file in the folder of guests of the operator's own image.
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
    /// Key under `binaryData`.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A module of the operator's own image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageModule {
    /// Name of the file, such as `serial-walk.wasm`.
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$"))]
    pub file: String,
}

/// A module in an OCI registry: an artefact with one component, as `ipu-operator policy push` makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciModule {
    /// The registry with its host, the repository, and a tag or the digest of the manifest, such as
    /// `registry.example.com/team/policy:1.2`.
    #[schemars(length(min = 1, max = 512))]
    pub reference: String,
    /// User and password: a Secret of the type `kubernetes.io/dockerconfigjson` in the namespace of the
    /// release. The chart's value `policies.secrets` must name it, too. Missing: none are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<SecretName>,
    /// CAs for the registry's certificate, instead of the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authorities: Option<PemSource>,
    /// Whether the registry is spoken to without TLS: credentials and modules can then be read on the
    /// way. What is loaded is still what `digest` says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_http: bool,
    /// By whom the module must be signed; missing: it need not be signed.
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

/// By whom a module must be signed, with `cosign sign --key`. Signatures by certificates (keyless ones)
/// do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequiredSignature {
    /// Public keys: ECDSA on P-256, Ed25519 or RSA. A signature of one of them is enough.
    #[schemars(length(min = 1, max = 8))]
    pub keys: Vec<PemSource>,
}

/// Where a text in PEM stands: exactly one place.
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
    /// name it, too.
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
