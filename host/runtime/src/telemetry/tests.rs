//! A log into memory: its lines, and its level while it runs.

use std::io::Write;
use std::sync::{Arc, Mutex};

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tracing::dispatcher::with_default;

use super::{LogFormat, made};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn taken(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(bytes).unwrap()
    }
}

#[test]
fn every_line_within_a_reconcile_names_the_job_at_any_level() {
    let lines = Lines::default();
    let writer = lines.clone();
    let (log, _) = made(LogFormat::Json, "warn", move || writer.clone(), None).unwrap();
    with_default(&log, || {
        let _within = tracing::error_span!("reconcile", job = "team/mnist").entered();
        tracing::warn!(id = 5, "made");
        tracing::info!("not logged");
    });
    let line: Value = serde_json::from_str(&lines.taken()).unwrap();
    assert_eq!((&line["message"], &line["id"]), (&json!("made"), &json!(5)));
    assert_eq!(line["span"]["job"], json!("team/mnist"));
}

#[test]
fn a_level_for_the_operator_is_one_for_all_of_its_packages() {
    let lines = Lines::default();
    let writer = lines.clone();
    let level = "info,ipu_operator=debug,ipu_jobs=warn";
    let (log, _) = made(LogFormat::Text, level, move || writer.clone(), None).unwrap();
    with_default(&log, || {
        tracing::debug!(target: "ipu_partitions::sweep", "of partitions");
        tracing::debug!(target: "vipu_client::client", "of the client");
        tracing::info!(target: "ipu_jobs::step", "of jobs");
        tracing::debug!(target: "hyper::client", "of a library");
    });
    let said = lines.taken();
    assert!(
        said.contains("of partitions") && said.contains("of the client"),
        "{said}"
    );
    assert!(
        !said.contains("of jobs") && !said.contains("of a library"),
        "{said}"
    );
}

#[test]
fn an_invalid_level_is_reported_and_changes_nothing() {
    for level in ["ipu_operator=much", "warning", "verbose", "6", "info,loud"] {
        let made = made(LogFormat::Text, level, std::io::sink, None);
        assert!(made.is_err(), "{level}");
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let (log, level) = made(LogFormat::Text, "info", move || writer.clone(), None).unwrap();
    let error = level.set(Some("ipu_operator=much")).unwrap_err();
    assert!(error.to_string().contains("ipu_operator=much"), "{error}");
    with_default(&log, || tracing::info!("still here"));
    assert!(lines.taken().contains("still here"));
}

#[tokio::test]
async fn the_level_follows_the_config_map_and_goes_back_without_it() {
    let lines = Lines::default();
    let writer = lines.clone();
    let (log, level) = made(LogFormat::Text, "warn", move || writer.clone(), None).unwrap();
    let is_debug = |lines: &Lines| {
        with_default(&log, || tracing::debug!("seen"));
        lines.taken().contains("seen")
    };
    let saying = |text: &str| ConfigMap {
        data: Some([("controller".to_owned(), text.to_owned())].into()),
        ..ConfigMap::default()
    };
    let follow = async |objects: Vec<Option<ConfigMap>>| {
        let (sender, heard) = mpsc::unbounded();
        for object in objects {
            sender.unbounded_send(Ok(object)).unwrap();
        }
        drop(sender);
        level.follow_objects("controller", heard).await;
    };
    assert!(!is_debug(&lines));
    follow(vec![Some(saying("debug"))]).await;
    assert!(is_debug(&lines));
    follow(vec![Some(saying("malformed=much"))]).await;
    assert!(is_debug(&lines), "what cannot be read changes nothing");
    follow(vec![Some(saying("debug")), None]).await;
    assert!(!is_debug(&lines));
    let other = ConfigMap {
        data: Some([("vipu-proxy".to_owned(), "debug".to_owned())].into()),
        ..ConfigMap::default()
    };
    follow(vec![Some(other)]).await;
    assert!(!is_debug(&lines), "it is the other process' level");
}
