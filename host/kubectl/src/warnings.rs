//! Pure: the last warning events of a job or a Pod.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde::Serialize;

use crate::condition::shown;

/// Most events that a page shows.
const SHOWN: usize = 5;

/// A warning event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// Time of the last occurrence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// Kind and name of its object.
    pub object: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Number of occurrences.
    pub count: i32,
}

/// The last warnings about objects, the latest first. `is_about` decides by kind, name and UID of
/// an event's object.
pub fn last(events: &[Event], is_about: impl Fn(&str, &str, Option<&str>) -> bool) -> Vec<Warning> {
    let is_meant = |event: &&Event| {
        let about = &event.involved_object;
        let kind = about.kind.as_deref().unwrap_or_default();
        let name = about.name.as_deref().unwrap_or_default();
        event.type_.as_deref() == Some("Warning") && is_about(kind, name, about.uid.as_deref())
    };
    let mut found: Vec<_> = events.iter().filter(is_meant).map(warning).collect();
    found.sort_by_cached_key(|one| Reverse((one.time, one.object.clone())));
    found.truncate(SHOWN);
    found
}

fn warning(event: &Event) -> Warning {
    let about = &event.involved_object;
    let series = event.series.as_ref();
    let last = series.and_then(|series| series.last_observed_time.as_ref());
    let time = last
        .map(|time| time.0)
        .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| {
            event
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0)
        });
    let count = series.and_then(|series| series.count).or(event.count);
    Warning {
        time,
        object: shown(&format!(
            "{} {}",
            about.kind.as_deref().unwrap_or_default(),
            about.name.as_deref().unwrap_or_default()
        )),
        reason: shown(event.reason.as_deref().unwrap_or_default()),
        message: shown(event.message.as_deref().unwrap_or_default()),
        count: count.unwrap_or(1),
    }
}
