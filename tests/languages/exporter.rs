//! The exporter of `examples/train/metrics.yaml` with a module in the place of Graphcore's
//! `gcipuinfo`, which needs IPUs.

use std::fs;
use std::process::{Child, Command};

use cluster::control_plane::free_ports;
use cluster::http::request;
use cluster::settings::checkout;
use cluster::wait::eventually;
use serde_json::Value;

/// Stands in for `gcipuinfo`: two IPUs, the second one without power and utilisation.
const GCIPUINFO: &str = r#"
class gcipuinfo:
    def setUpdateMode(self, is_updated):
        assert is_updated

    def getDevices(self):
        return [
            {"id": "0", "ipu power": "92.5W", "average die temp": "24.2 C", "ipu utilisation": "50.00%", "clock": "1330MHz"},
            {"id": "1", "ipu power": "N/A", "average die temp": "25.0 C", "clock": "1330MHz"},
        ]
"#;

/// What the exporter serves of these IPUs.
const EXPECTED: &str = r#"# HELP ipu_program_power_watts The attribute 'ipu power' of gcipuinfo.
# TYPE ipu_program_power_watts gauge
ipu_program_power_watts{ipu="0"} 92.5
# HELP ipu_program_die_temperature_celsius The attribute 'average die temp' of gcipuinfo.
# TYPE ipu_program_die_temperature_celsius gauge
ipu_program_die_temperature_celsius{ipu="0"} 24.2
ipu_program_die_temperature_celsius{ipu="1"} 25.0
# HELP ipu_program_board_temperature_celsius The attribute 'average board temp' of gcipuinfo.
# TYPE ipu_program_board_temperature_celsius gauge
# HELP ipu_program_utilisation_ratio The attribute 'ipu utilisation' of gcipuinfo.
# TYPE ipu_program_utilisation_ratio gauge
ipu_program_utilisation_ratio{ipu="0"} 0.5
# HELP ipu_program_clock_hertz The attribute 'clock' of gcipuinfo.
# TYPE ipu_program_clock_hertz gauge
ipu_program_clock_hertz{ipu="0"} 1330000000.0
ipu_program_clock_hertz{ipu="1"} 1330000000.0
"#;

/// A program that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // There is no process to kill if it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn exporter_serves_what_gcipuinfo_reports() {
    let manifest = fs::read_to_string(checkout().join("examples/train/metrics.yaml")).unwrap();
    let documents = manifest.split("\n---\n").next().unwrap();
    let program: Value = serde_saphyr::from_str(documents).unwrap();
    let program = program["data"]["exporter.py"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let exporter = folder.path().join("exporter.py");
    fs::write(&exporter, program).unwrap();
    fs::write(folder.path().join("gcipuinfo.py"), GCIPUINFO).unwrap();
    let [port] = free_ports().unwrap();
    let mut python = Command::new("python3");
    python
        .arg(&exporter)
        .env("PYTHONPATH", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PORT", port.to_string());
    let _running = Running(python.spawn().unwrap());
    let url = format!("http://127.0.0.1:{port}/metrics");
    let served = eventually("the exporter answers", async || {
        request("GET", &url, "").await
    })
    .await;
    assert_eq!(served, EXPECTED);
}
