//! A real Prometheus, Debian's, which ends with its test.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use cluster::http::request;
use cluster::wait::Seen;
use serde_json::Value;
use tests::prometheus::program;

use crate::partition::fixture::free_port;

/// A Prometheus on a free port.
pub(super) struct Prometheus {
    process: Child,
    port: u16,
}

impl Prometheus {
    /// Starts one with this configuration, which stores its data in the folder.
    pub(super) fn start(folder: &Path, config: &Path) -> Self {
        let port = free_port();
        let mut prometheus = Command::new(program("prometheus").unwrap());
        prometheus
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--enable-feature=exemplar-storage")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = prometheus.spawn().unwrap();
        Self { process, port }
    }

    /// The data of an answer, once there are any.
    pub(super) async fn ask(&self, what: &str) -> Seen<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/{what}", self.port);
        let answer = match request("GET", &url, "").await {
            Ok(answer) => answer,
            Err(error) => return Seen::NotYet(error.to_string()),
        };
        let answer: Value = serde_json::from_str(&answer).unwrap();
        Seen::when(answer["data"].clone(), |data| !is_empty(data))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // There is no process to kill if it has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_empty(data: &Value) -> bool {
    let result = data.get("result").unwrap_or(data);
    result.as_array().is_none_or(Vec::is_empty)
}
