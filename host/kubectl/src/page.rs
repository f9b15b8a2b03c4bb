//! Pure: the page of `kubectl ipu why`, as text and for programs.

use std::fmt::Write as _;

use ipu_api::ipujob_status::JobAccounting;
use ipu_api::partition_conditions::READY;
use jiff::Timestamp;
use serde::Serialize;

use crate::age::{age, length};
use crate::condition::ShownCondition;
use crate::controllers::{Fit, ReservedController, UnavailableController};
use crate::partitions::PartitionLine;
use crate::pods::{PodLine, Pods};
use crate::warnings::Warning;

/// All that is known of an IPUJob or a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Kind, namespace and name.
    pub object: String,
    /// Its state, in one or two words.
    pub state: String,
    /// Creation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Requested IPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Durations of its activities, until the operator last counted them. Missing: it is a Pod, or
    /// not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounting: Option<JobAccounting>,
    /// Its conditions that explain its state.
    pub conditions: Vec<ShownCondition>,
    /// The queue of Kueue that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kueue: Option<Kueue>,
    /// Its IPUPartitions.
    pub partitions: Vec<PartitionLine>,
    /// Capacity of the V-IPU controllers, while it waits for one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Its Pods; of a Pod: missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Pods>,
    /// The last warning events.
    pub warnings: Vec<Warning>,
    /// Parts that the rights of the user do not show.
    pub not_shown: Vec<String>,
    /// Advice.
    pub advice: Vec<String>,
}

/// Capacity of the V-IPU controllers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// Those that take no new partitions, by their addresses.
    pub closed: Vec<UnavailableController>,
    /// Those whose free capacity is reserved for a request, by their addresses.
    pub reserved: Vec<ReservedController>,
    /// The largest partition that a new request would get now. Missing: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_fit: Option<Fit>,
}

/// A queue of Kueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kueue {
    /// Name of the LocalQueue.
    pub queue: String,
    /// Statement of Kueue about the quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<ShownCondition>,
}

impl Page {
    /// The page as text.
    pub fn text(&self, now: Timestamp) -> String {
        let since = |time: Option<Timestamp>| time.map(|time| age(time, now));
        let mut text = format!("{}: {}", self.object, self.state);
        if let Some(age) = since(self.created) {
            push(&mut text, format_args!(", created {age} ago"));
        }
        text.push('\n');
        if let Some(request) = &self.request {
            push(&mut text, format_args!("Requests {request}.\n"));
        }
        if let Some(message) = &self.message {
            push(&mut text, format_args!("Last message: {message}\n"));
        }
        if let Some(spent) = self.accounting.as_ref().and_then(|one| spent(one, now)) {
            push(&mut text, format_args!("{spent}\n"));
        }
        let conditions = self.conditions.iter().map(|one| condition(one, now));
        section(&mut text, "Conditions:", conditions);
        let kueue = self.kueue.iter().map(|one| queue(one, now));
        section(&mut text, "Queue of Kueue:", kueue);
        let partitions = self.partitions.iter().flat_map(|one| partition(one, now));
        section(&mut text, "Partitions:", partitions);
        let capacity = self.capacity.iter().flat_map(capacity);
        section(&mut text, "V-IPU controllers:", capacity);
        if let Some(pods) = self.pods.as_ref().filter(|pods| pods.total > 0) {
            let title = format!("Pods: {} of {} run", pods.running, pods.total);
            section(&mut text, &title, pods.others.iter().map(pod));
            if pods.others.is_empty() {
                push(&mut text, format_args!("\n{title}\n"));
            }
        }
        let warnings = self.warnings.iter().map(|one| warning(one, now));
        section(&mut text, "Warnings:", warnings);
        section(&mut text, "Not shown:", self.not_shown.iter().cloned());
        section(&mut text, "What to do:", self.advice.iter().cloned());
        text
    }
}

/// Adds a title and its lines, if there are any.
fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    push(text, format_args!("\n{title}\n"));
    for line in lines {
        push(text, format_args!("  {line}\n"));
    }
}

fn push(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(words);
}

/// Returns the durations of a job's activities, if there are any.
fn spent(accounting: &JobAccounting, now: Timestamp) -> Option<String> {
    let kinds = [
        ("suspended", accounting.suspended),
        ("waiting", accounting.waiting),
        ("forming", accounting.forming),
        ("starting", accounting.starting),
        ("running", accounting.running),
        ("resetting", accounting.resetting),
        ("idle", accounting.idle),
        ("restarting", accounting.restarting),
        ("wasted by failed runs", accounting.wasted),
    ];
    let kinds = kinds.into_iter().filter(|(_, seconds)| *seconds > 0);
    let kinds: Vec<_> = kinds
        .map(|(kind, seconds)| format!("{kind} {}", length(seconds)))
        .collect();
    let until = age(accounting.until.0, now);
    (!kinds.is_empty()).then(|| format!("Time until {until} ago: {}", kinds.join(", ")))
}

fn condition(one: &ShownCondition, now: Timestamp) -> String {
    let mut line = format!("{} is {}", one.type_, one.status);
    if let Some(since) = one.since {
        push(&mut line, format_args!(" for {}", age(since, now)));
    }
    for words in [&one.reason, &one.message] {
        if !words.is_empty() {
            push(&mut line, format_args!(": {words}"));
        }
    }
    line
}

fn queue(kueue: &Kueue, now: Timestamp) -> String {
    match &kueue.quota {
        Some(one) => format!("{}: {}", kueue.queue, condition(one, now)),
        None => kueue.queue.clone(),
    }
}

/// A partition in one line, and the details below it.
fn partition(one: &PartitionLine, now: Timestamp) -> Vec<String> {
    let mut first = format!(
        "{} (slot {}, {} IPUs): {}",
        one.name, one.slot, one.ipus, one.phase
    );
    if let Some(since) = one.since {
        push(&mut first, format_args!(" for {}", age(since, now)));
    }
    if let Some(queue) = one.queue {
        push(
            &mut first,
            format_args!(
                ", position {} of {} in the queue",
                queue.position, queue.waiting
            ),
        );
    }
    if let Some(controller) = &one.controller {
        push(&mut first, format_args!(", on {controller}"));
    }
    if let Some(id) = &one.partition_id {
        push(&mut first, format_args!(" as {id}"));
    }
    let reasons = one.waiting.iter();
    let reasons = reasons.map(|why| format!("  {}: {}", why.controller, why.reason));
    let decided = one.decided_by.iter().map(|by| format!("  chosen by {by}"));
    let message = one.message.iter().map(|words| format!("  {words}"));
    // The message of Ready repeats what is shown already.
    let others = one.conditions.iter().filter(|one| one.type_ != READY);
    let others = others.map(|one| format!("  {}", condition(one, now)));
    std::iter::once(first)
        .chain(reasons)
        .chain(message)
        .chain(decided)
        .chain(others)
        .collect()
}

/// A line for each V-IPU controller that takes no new partitions or is reserved, and what fits on
/// the others.
fn capacity(capacity: &Capacity) -> Vec<String> {
    let closed = capacity.closed.iter();
    let mut lines: Vec<_> = closed
        .map(|one| format!("{} {}", one.controller, one.reasons.join(", ")))
        .collect();
    let reserved = capacity.reserved.iter();
    lines.extend(reserved.map(|one| {
        let (controller, whom) = (&one.controller, &one.reserved_for);
        format!("{controller} is reserved for {whom}")
    }));
    lines.push(match &capacity.largest_fit {
        Some(fit) => format!(
            "largest fit now: {} IPUs on {}",
            fit.ipus,
            fit.controllers.join(", ")
        ),
        None => "largest fit now: none".to_owned(),
    });
    lines
}

fn pod(line: &PodLine) -> String {
    let mut text = format!("{} ({})", line.name, line.phase);
    if let Some(cause) = &line.cause {
        push(&mut text, format_args!(": {}", cause.reason));
        if let Some(message) = &cause.message {
            push(&mut text, format_args!(": {message}"));
        }
    }
    text
}

fn warning(one: &Warning, now: Timestamp) -> String {
    let mut text = String::new();
    if let Some(time) = one.time {
        push(&mut text, format_args!("{} ago, ", age(time, now)));
    }
    push(
        &mut text,
        format_args!("{}: {}: {}", one.object, one.reason, one.message),
    );
    if one.count > 1 {
        push(&mut text, format_args!(" ({} times)", one.count));
    }
    text
}
