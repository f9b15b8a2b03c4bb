//! The folder of modules and their compiled forms fits into its volume of the chart.

use ipu_guest_host::Limits;
use ipu_policies::source::cache_dir::CACHE_LIMIT;

/// Size of the volume in bytes, as in the chart's template.
fn volume() -> u64 {
    let template = include_str!("../../../charts/ipu-operator/templates/_pods.tpl");
    let limits: Vec<_> = template
        .lines()
        .filter_map(|line| line.trim().strip_prefix("sizeLimit: "))
        .collect();
    let [limit] = limits[..] else {
        panic!("{limits:?}");
    };
    let mebibytes: u64 = limit.strip_suffix("Mi").unwrap().parse().unwrap();
    mebibytes << 20
}

#[test]
fn kept_modules_leave_enough_space_in_the_volume_for_a_compilation() {
    // Only one module is compiled at a time.
    let Limits {
        module, compiled, ..
    } = Limits::default();
    assert!(CACHE_LIMIT + module + compiled <= volume(), "{}", volume());
}
