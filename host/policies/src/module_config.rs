//! Pure: the configuration of a module, from the spec of its IPUPolicy.

use std::time::Duration;

use ipu_api::ipupolicy::IPUPolicySpec;
use ipu_guest_host::ModuleConfig;
use serde_json::Value;

/// Returns the settings and limits with which the operator loads the module of a policy.
pub fn module_config(spec: &IPUPolicySpec) -> ModuleConfig {
    let limits = spec.limits.unwrap_or_default();
    let settings = spec.settings.clone().map_or_else(
        || "{}".to_owned(),
        |settings| Value::Object(settings).to_string(),
    );
    ModuleConfig {
        settings,
        deadline: limits
            .deadline_milliseconds
            .map(|time| Duration::from_millis(time.into())),
        memory: limits.memory_mebibytes.map(|size| (size as usize) << 20),
        output: limits.output_kibibytes.map(|size| (size as usize) << 10),
    }
}
