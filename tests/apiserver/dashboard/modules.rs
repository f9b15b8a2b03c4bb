//! The modules of the page on their own: what they draw of given data.

use serde_json::{Value, json};
use tests::chromium::{Browser, Page};

use super::browser::shows;
use super::fixture::Dashboard;
use crate::kubectl_ipu::Office;

/// The value of an expression, with the exports of a module as `it`.
async fn of(page: &mut Page, module: &str, expression: &str) -> Value {
    let script = format!("import(`${{location.pathname}}{module}.js`).then((it) => {expression})");
    page.evaluate(&script).await.unwrap()
}

#[tokio::test]
async fn grids_outlines_and_trends_show_what_is_known_and_nothing_else() {
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    let dashboard = Dashboard::start(&office, "root", &[]).await;
    let browser = Browser::start().await.unwrap();
    let mut page = browser.open().await.unwrap();
    page.go(&dashboard.url("")).await.unwrap();
    shows(&mut page, &["No request waits for IPUs."]).await;

    outlines(&mut page).await;
    blocks(&mut page).await;
    trends(&mut page).await;
    assert!(page.problems().is_empty(), "{:#?}", page.problems());
}

/// 64 IPUs are a square, and a partition has one edge.
async fn outlines(page: &mut Page) {
    let columns = of(page, "map", "[1, 2, 16, 32, 64, 256].map(it.columns)").await;
    assert_eq!(columns, json!([1, 2, 4, 8, 8, 16]));
    for (first, ipus, expected) in [
        (0, 64, "M0 0H80V80H0Z"),
        (4, 4, "M40 0H80V10H40Z"),
        (8, 16, "M0 10H80V30H0Z"),
        // Over the end of a row: two parts that do not touch.
        (6, 4, "M60 0H80V10H60ZM0 10H20V20H0Z"),
        (4, 20, "M40 0H80V20H80V30H0V10H40Z"),
        (4, 18, "M40 0H80V20H60V30H0V10H40Z"),
    ] {
        let drawn = of(page, "map", &format!("it.outline({first}, {ipus}, 8)")).await;
        assert_eq!(drawn, expected, "{ipus} IPUs from {first} on");
    }
}

/// Grids, and blocks on the first one: a place that two blocks claim belongs to the first, and the
/// other is beside it.
async fn blocks(page: &mut Page) {
    for (blocks, expected) in [
        (
            json!([{"state": "free", "ipus": 4, "first": 0}]),
            json!([1, 1]),
        ),
        (json!([{"state": "free", "ipus": 4}]), json!([1, 1])),
        (
            json!([
                {"state": "ready", "ipus": 2, "first": 0}, {"state": "error", "ipus": 2, "first": 1},
                {"state": "free", "ipus": 1},
            ]),
            json!([3, 1]),
        ),
        (
            json!([{"state": "ready", "ipus": 8, "first": 2}]),
            json!([1, 1]),
        ),
    ] {
        let row = json!({"address": "pod1:8090", "total": 4, "blocks": blocks});
        let count = format!(
            "(() => {{ const all = it.map({row}).querySelectorAll('svg'); \
             return [all.length, all[0].querySelectorAll('[data-tip]').length]; }})()"
        );
        assert_eq!(of(page, "map", &count).await, expected, "{row}");
    }
}

/// Times that nobody has seen are hatched: before the first sample, in a gap, and after the last
/// one.
async fn trends(page: &mut Page) {
    let hours = |hour: i64| format!("Date.now() - {hour} * 3600000");
    let segment = |from, until| {
        format!(
            "{{ from: {}, until: {}, value: 1 }}",
            hours(from),
            hours(until)
        )
    };
    for (segments, expected) in [
        (String::new(), 1),
        (segment(10, 0), 1),
        (segment(24, 0), 0),
        (format!("{}, {}", segment(24, 12), segment(6, 0)), 1),
        (format!("{}, {}", segment(20, 12), segment(12, 0)), 1),
        (format!("{}, {}", segment(20, 12), segment(6, 0)), 2),
        (segment(20, 12), 2),
    ] {
        let count = format!(
            "it.trend('Requests', [{segments}], 1, String, '').querySelectorAll('.trend-unknown').length"
        );
        assert_eq!(of(page, "plots", &count).await, expected, "{segments}");
    }
}
