//! Runs the health checks of the file as Argo CD does: with the same interpreter, and with the
//! libraries that it loads.

use std::process::Command;

use cluster::{command, progress::Progress, settings::Settings, tools::Tools};
use serde_json::Value;

use super::object;

/// Argo CD loads the libraries `base`, `package`, `table` and some functions of `os`.
const SANDBOX: &str = "
string, math, io, debug, channel, coroutine = nil
getmetatable('').__index = nil
";

/// Health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) status: String,
    pub(super) message: String,
}

/// The interpreter.
pub(super) struct Lua {
    tools: Tools,
    scripts: Value,
}

impl Lua {
    pub(super) fn new() -> Self {
        let settings = Settings::from_env().unwrap();
        let tools = Tools::fetch_some(&settings, &Progress::start(), &["glua"]).unwrap();
        let scripts = object("argo-cd-health.yaml", "ConfigMap")["data"].clone();
        Self { tools, scripts }
    }

    /// The kinds of the scripts.
    pub(super) fn kinds(&self) -> Vec<&str> {
        let keys = self.scripts.as_object().unwrap().keys();
        keys.map(|key| key.rsplit_once('_').unwrap().1).collect()
    }

    /// Health of an object, by the script of its kind.
    pub(super) fn health(&self, object: &Value) -> Health {
        let kind = object["kind"].as_str().unwrap();
        let script = &self.scripts[format!("resource.customizations.health.graphcore.ai_{kind}")];
        let (object, script) = (literal(object), script.as_str().unwrap());
        let program = format!(
            "local print, tostring = print, tostring\nobj = {object}\n{SANDBOX}\nlocal function check()\n{script}\nend\n\
             local health = check()\nprint(health.status)\nprint(tostring(health.message))\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("health.lua");
        std::fs::write(&file, program).unwrap();
        let printed = command::output(Command::new(self.tools.program("glua")).arg(file)).unwrap();
        let (status, message) = printed.split_once('\n').unwrap();
        let known = ["Healthy", "Progressing", "Degraded", "Suspended"];
        assert!(known.contains(&status), "{printed}");
        Health {
            status: status.to_owned(),
            message: message.trim_end().to_owned(),
        }
    }
}

/// A value in the syntax of Lua.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields =
                fields.map(|(key, value)| format!("[{}] = {}", quoted(key), literal(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}
