//! Pure: the networks of the release, from the settings of the policy.

use std::collections::BTreeMap;

use guest_sdk::settings;
use serde_json::Value;

/// The networks of the release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The networks by their names.
    pub networks: BTreeMap<String, Preset>,
    /// Network of workers whose job names none. `None`: no second network.
    pub worker_network: Option<String>,
}

/// What workers need for a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The NetworkAttachmentDefinition: `<name>` in the namespace of the job, or
    /// `<namespace>/<name>`.
    pub attachment: String,
    /// The resource of its RDMA devices. Empty: none.
    pub resource: String,
}

impl Settings {
    /// Reads settings such as
    /// `{"networks": {"rdma": {"attachment": "default/rdma-net", "resource": "rdma/rdma_shared_device_a"}}, "workerNetwork": "rdma"}`.
    /// Missing keys have their defaults, and keys of other policies are ignored. The error names
    /// the key, the value and the rule.
    pub fn parse(json: &str) -> Result<Self, String> {
        let settings = settings::parse_object(json)?;
        let mut parsed = Self::default();
        match settings.get("networks") {
            None => {}
            Some(Value::Object(networks)) => {
                for (name, preset) in networks {
                    parsed
                        .networks
                        .insert(name.clone(), Preset::parse(name, preset)?);
                }
            }
            Some(other) => {
                return Err(format!(
                    "networks is {other}; it must be an object with one key for each network"
                ));
            }
        }
        match settings.get("workerNetwork") {
            None => {}
            Some(Value::String(name)) if parsed.networks.contains_key(name) => {
                parsed.worker_network = Some(name.clone());
            }
            Some(other) => {
                return Err(format!(
                    "workerNetwork is {other}; it must be a key of networks"
                ));
            }
        }
        Ok(parsed)
    }
}

impl Preset {
    fn parse(name: &str, preset: &Value) -> Result<Self, String> {
        let attachment = preset["attachment"]
            .as_str()
            .filter(|attachment| !attachment.is_empty());
        let attachment = attachment.ok_or_else(|| {
            format!("networks.{name}.attachment is {}; it must be the name of a NetworkAttachmentDefinition", preset["attachment"])
        })?;
        let resource = match &preset["resource"] {
            Value::Null => "",
            Value::String(resource) => resource,
            other => {
                return Err(format!(
                    "networks.{name}.resource is {other}; it must be the name of a resource"
                ));
            }
        };
        Ok(Self {
            attachment: attachment.to_owned(),
            resource: resource.to_owned(),
        })
    }
}
