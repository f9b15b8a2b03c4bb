//! Pure: the fields that the dashboard stores of a VIPUController, and of its IPUAccounting.

use ipu_api::accounting::Period;
use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::vipu_controller::{ControllerIpus, VIPUController};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::DynamicObject;
use serde::Serialize;

use crate::shown::shown;

/// Most hours that are kept of a V-IPU controller's accounting.
const HOURS_MAX: usize = 25;

/// A V-IPU controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controller {
    /// Name of the object. Empty: the user may not list them, and partitions name this one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `host:port`, as partitions name it.
    pub address: String,
    /// Its state in words.
    pub summary: String,
    /// Whether it answers.
    pub is_ready: bool,
    /// Time of the last change of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Whether it is in the admin's list.
    #[serde(skip)]
    pub is_listed: bool,
    /// Whether it is cordoned or drained.
    #[serde(skip)]
    pub is_cordoned: bool,
    /// The user who has cordoned or drained it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Key and value of the label of the nodes that reach it.
    #[serde(skip)]
    pub label: (String, String),
    /// Number of nodes that have it.
    pub nodes: u32,
    /// Version of its server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its IPUs.
    #[serde(skip)]
    pub ipus: ControllerIpus,
    /// Places of its free IPUs, as ranges.
    #[serde(skip)]
    pub free_ipus: Option<String>,
    /// The request that its free IPUs are reserved for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<String>,
    /// Number of changes of partitions to ERROR within the last day.
    pub failed_partitions: u32,
    /// Number of its own resets of partitions within the last day.
    pub auto_resets: u32,
}

/// The last hours of a V-IPU controller's accounting.
#[derive(Clone, Debug, PartialEq)]
pub struct Accounted {
    /// Until when it is counted.
    pub until: Timestamp,
    /// The last hours, oldest first.
    pub hours: Vec<Period>,
}

impl Controller {
    /// The stored fields of an object. `None`: it is unreadable.
    pub fn of(object: DynamicObject) -> Option<Self> {
        let object: VIPUController = object.try_parse().ok()?;
        let spec = object.spec;
        let status = object.status.unwrap_or_default();
        let is = |type_: &str, value: &str| {
            let mut conditions = status.conditions.iter();
            conditions.any(|one| one.type_ == type_ && one.status == value)
        };
        let is_ready = is("Ready", "True");
        let is_listed = !is("Listed", "False");
        let ready = status.conditions.iter().find(|one| one.type_ == "Ready");
        let since = ready.map(|one: &Condition| one.last_transition_time.0);
        Some(Self {
            name: shown(&object.metadata.name.unwrap_or_default()),
            address: shown(&status.address),
            summary: shown(&status.summary),
            is_ready,
            since,
            is_listed,
            is_cordoned: spec.cordoned || spec.draining,
            requested_by: spec.requested_by.as_deref().map(shown),
            reason: spec.reason.as_deref().map(shown),
            label: (shown(&status.label_key), shown(&status.label_value)),
            nodes: status.nodes,
            version: status.server_version.as_deref().map(shown),
            ipus: status.ipus,
            free_ipus: status.free_ipus,
            reserved_for: status.reserved_for.as_deref().map(shown),
            failed_partitions: status.last_day.failed_partitions,
            auto_resets: status.last_day.auto_resets,
        })
    }

    /// Whether new partitions can be created on it.
    pub fn is_open(&self) -> bool {
        self.is_ready && self.is_listed && !self.is_cordoned
    }

    /// The largest partition that a new request would get on it now. 0 if it is not open.
    pub fn largest_fit(&self) -> u32 {
        if !self.is_open() {
            return 0;
        }
        // Earlier versions of the operator report only the free IPUs.
        self.ipus.largest_fit.unwrap_or(self.ipus.largest_free)
    }
}

impl Accounted {
    /// The stored fields of an IPUAccounting: the last hours, without earlier ones and days.
    /// `None`: it is unreadable.
    pub fn of(object: DynamicObject) -> Option<Self> {
        let object: IPUAccounting = object.try_parse().ok()?;
        let accounting = object.spec.accounting;
        let mut hours = accounting.hours;
        hours.drain(..hours.len().saturating_sub(HOURS_MAX));
        Some(Self {
            until: accounting.until.0,
            hours,
        })
    }
}
