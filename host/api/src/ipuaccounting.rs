//! IPUAccounting: where the IPU-seconds of one V-IPU controller went. It is no part of
//! the VIPUController, because that is watched and changes often, and this is large.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounting::Accounting;

/// The record of a V-IPU controller. Only the operator writes it, about once a minute.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "graphcore.ai",
    version = "v1alpha1",
    kind = "IPUAccounting",
    plural = "ipuaccountings",
    singular = "ipuaccounting",
    shortname = "ipua",
    derive = "PartialEq",
    doc = "Where the IPU-seconds of a V-IPU controller went. It has the name of the VIPUController, and stays when that is deleted.",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "IPUs", type_ = "integer", json_path = ".spec.ipus"),
    printcolumn(name = "Since", type_ = "string", json_path = ".spec.since"),
    printcolumn(name = "Until", type_ = "string", json_path = ".spec.until")
)]
#[serde(rename_all = "camelCase")]
pub struct IPUAccountingSpec {
    /// `host:port` of the V-IPU controller.
    pub address: String,
    /// Number of its IPUs at `until`.
    #[serde(default)]
    pub ipus: u32,
    /// Its IPU-seconds by use.
    #[serde(flatten)]
    pub accounting: Accounting,
}
