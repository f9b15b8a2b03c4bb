//! The rules and panels about IPU-Machines name metrics that exist: those of the exporters, of the
//! operator, or recorded ones. The document about them lists each, and says which names Graphcore
//! publishes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use cluster::http::request;
use vipu_simulator::{Options, Simulator};

use super::{alerts, chart, names, queries, rules};

/// The file with the rules.
const FILE: &str = "files/hardware.yaml";

/// The names that chapter 7 of Graphcore's V-IPU Administrator Guide publishes for an IPU-Machine,
/// as a public catalogue of exporters quotes them. The guide completes neither labels nor types.
const PUBLISHED: [&str; 9] = [
    "chassis_fan",
    "chassis_power",
    "chassis_temperature",
    "exporter_ticks",
    "gcipuinfo_clock_frequency",
    "ipu_attached",
    "ipu_link_err_cnt",
    "ipu_tile_clk_speed",
    "ipum_hardware_info",
];

/// The names of metrics in a query that are of an exporter or recorded.
fn of_hardware(query: &str) -> BTreeSet<String> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    let words = query.split(|letter| !is_of_name(letter));
    let is_exported = |word: &str| PUBLISHED.contains(&word);
    words
        .filter(|word| word.contains(":ipu") || is_exported(word))
        .map(str::to_owned)
        .collect()
}

fn recorded() -> BTreeSet<String> {
    let rules = rules(FILE).into_iter();
    rules
        .filter_map(|rule| rule["record"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn the_simulator_exports_the_published_names() {
    let simulator = Simulator::start(Options::quick("pod1", 4)).await.unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let exporters = simulator.export(any).await.unwrap();
    let url = format!("http://{}/metrics", exporters[0].address);
    let exported = names(&request("GET", &url, "").await.unwrap());
    assert_eq!(exported, PUBLISHED.map(str::to_owned).into());
}

#[test]
fn rules_and_panels_name_only_metrics_that_exist() {
    let recorded = recorded();
    let of_rules = rules(FILE).into_iter();
    let of_rules = of_rules.map(|rule| rule["expr"].as_str().unwrap().to_owned());
    let alerted = alerts().into_iter().map(|(_, query)| query);
    let asked = of_rules.chain(alerted).chain(queries());
    let asked: BTreeSet<_> = asked.flat_map(|query| of_hardware(&query)).collect();
    let is_known = |name: &String| recorded.contains(name) || PUBLISHED.contains(&&**name);
    let unknown: Vec<_> = asked.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "nothing serves {unknown:?}");
    let unused: Vec<_> = recorded.difference(&asked).collect();
    assert!(unused.is_empty(), "no rule and no panel uses {unused:?}");
}

#[test]
fn the_page_lists_published_and_recorded_names() {
    let page = chart("docs/hardware-metrics.md");
    let names = PUBLISHED.map(str::to_owned).into_iter().chain(recorded());
    let missing: Vec<_> = names
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "the page does not list {missing:?}");
}
