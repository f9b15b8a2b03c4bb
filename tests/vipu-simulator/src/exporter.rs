//! The exporter of one IPU-Machine: its metrics in OpenMetrics, which follow the partitions on it.
//!
//! Graphcore publishes the names, not the labels, types and units. These are the simulator's
//! assumption, and so are all values. A real exporter was never read.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use jiff::Timestamp;

use crate::pod::Pod;
use crate::server::Server;
use crate::wire::IPUS_PER_MACHINE;

/// Watts of an IPU-Machine without a partition.
const IDLE_WATTS: u32 = 120;

/// Watts of each IPU in a partition.
const WATTS_PER_IPU: u32 = 55;

/// Degrees Celsius of an IPU-Machine without a partition.
const IDLE_CELSIUS: u32 = 25;

/// Degrees Celsius of each IPU in a partition.
const CELSIUS_PER_IPU: u32 = 4;

/// IPU-Links of each IPU that have a counter of errors.
const LINKS: u32 = 2;

/// The media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An exporter, and the number of its IPU-Machine.
#[derive(Clone)]
struct Exporter {
    server: Arc<Server>,
    machine: u32,
}

/// The routes of the exporter of an IPU-Machine.
pub(super) fn router(server: Arc<Server>, machine: u32) -> Router {
    let exporter = Exporter { server, machine };
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(exporter)
}

async fn metrics(State(exporter): State<Exporter>) -> impl IntoResponse {
    let machine = exporter.machine;
    let text = exporter
        .server
        .with(|world, now| text(&mut world.pod, machine, now));
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}

/// Number of IPU-Machines of a pod.
pub(super) fn machines(pod: &Pod) -> u32 {
    pod.ipus.div_ceil(IPUS_PER_MACHINE)
}

/// The metrics of an IPU-Machine at `now`.
fn text(pod: &mut Pod, machine: u32, now: Timestamp) -> String {
    let first = machine * IPUS_PER_MACHINE;
    let count = IPUS_PER_MACHINE.min(pod.ipus.saturating_sub(first));
    let mut attached: Vec<_> = (0..count).map(|_| false).collect();
    for partition in pod.partitions(now) {
        let block = partition.block;
        let ipus = block.first..block.first + block.size;
        for (ipu, is_attached) in (first..).zip(&mut attached) {
            *is_attached |= ipus.contains(&ipu);
        }
    }
    let used = attached
        .iter()
        .map(|is_attached| u32::from(*is_attached))
        .sum::<u32>();
    let mut text = String::new();
    gauge(
        &mut text,
        "chassis_fan",
        [("{fan=\"1\"}".to_owned(), 6_000)],
    );
    let watts = IDLE_WATTS + WATTS_PER_IPU * used;
    gauge(&mut text, "chassis_power", [(String::new(), watts)]);
    let celsius = IDLE_CELSIUS + CELSIUS_PER_IPU * used;
    let sensors = [("inlet", IDLE_CELSIUS - 3), ("outlet", celsius)];
    let sensors = sensors.map(|(sensor, value)| (format!("{{sensor=\"{sensor}\"}}"), value));
    gauge(&mut text, "chassis_temperature", sensors);
    gauge(&mut text, "exporter_ticks", [(String::new(), 1)]);
    let of_ipu = |value: u32| (0..count).map(move |ipu| (format!("{{ipu=\"{ipu}\"}}"), value));
    gauge(&mut text, "gcipuinfo_clock_frequency", of_ipu(1_330));
    let attached = (0..).zip(&attached).map(|(ipu, is_attached): (u32, _)| {
        (format!("{{ipu=\"{ipu}\"}}"), u32::from(*is_attached))
    });
    gauge(&mut text, "ipu_attached", attached);
    let links = (0..count).flat_map(|ipu| (0..LINKS).map(move |link| (ipu, link)));
    let links = links.map(|(ipu, link)| (format!("{{ipu=\"{ipu}\",link=\"{link}\"}}"), 0));
    gauge(&mut text, "ipu_link_err_cnt", links);
    gauge(&mut text, "ipu_tile_clk_speed", of_ipu(1_330));
    let hardware = "{board_type=\"M2000\"}".to_owned();
    gauge(&mut text, "ipum_hardware_info", [(hardware, 1)]);
    text.push_str("# EOF\n");
    text
}

fn gauge(text: &mut String, name: &str, samples: impl IntoIterator<Item = (String, u32)>) {
    let _ = writeln!(text, "# TYPE {name} gauge");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{PartitionSpec, Timings};

    #[test]
    fn power_and_temperature_follow_the_partitions_of_the_machine() {
        let mut pod = Pod::new("pod1", 16, Timings::default());
        for (id, ipus) in [("a", 8), ("b", 2)] {
            let spec = PartitionSpec {
                id: id.to_owned(),
                ipus,
                ..PartitionSpec::default()
            };
            pod.take(&spec, Timestamp::UNIX_EPOCH).unwrap();
        }
        let mut shown = |machine| text(&mut pod, machine, Timestamp::UNIX_EPOCH);
        for (machine, watts, celsius) in [(0, 340, 41), (1, 340, 41), (2, 230, 33), (3, 120, 25)] {
            let text = shown(machine);
            assert!(
                text.contains(&format!("\nchassis_power {watts}\n")),
                "{text}"
            );
            let outlet = format!("\nchassis_temperature{{sensor=\"outlet\"}} {celsius}\n");
            assert!(text.contains(&outlet), "{text}");
        }
        assert!(shown(2).contains("\nipu_attached{ipu=\"1\"} 1\nipu_attached{ipu=\"2\"} 0\n"));
    }

    #[test]
    fn a_machine_that_is_not_full_has_fewer_ipus() {
        let mut pod = Pod::new("pod1", 6, Timings::default());
        assert_eq!(machines(&pod), 2);
        let text = text(&mut pod, 1, Timestamp::UNIX_EPOCH);
        assert_eq!(text.matches("\nipu_attached{").count(), 2, "{text}");
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }
}
