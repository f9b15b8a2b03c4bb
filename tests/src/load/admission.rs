//! The time of admission on an API server with many concurrent clients, as the API server measures it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use kube::api::{DynamicObject, PostParams};
use tokio::time::{Instant, sleep_until};

use super::api_writes::metrics;
use super::product::{Product, job};
use super::submit::jobs;
use super::{LoadError, api};

/// Clients that write at the same time.
const CLIENTS: usize = 100;

/// Time between two creations at an even pace: a third of the rate that two cores reach.
const PACE: Duration = Duration::from_millis(5);

/// The call of a webhook.
const WEBHOOK: &str = "apiserver_admission_webhook_admission_duration_seconds";

/// A request of a user.
const REQUEST: &str = "apiserver_request_duration_seconds";

/// The cost of admission.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Calls of the webhooks, by their type: the share of them that ended within each bound, in seconds.
    pub webhooks: BTreeMap<String, Times>,
    /// The whole of a creation.
    pub creation: Times,
}

/// A histogram of the API server.
#[derive(Clone, Debug, Default)]
pub struct Times {
    count: f64,
    sum: f64,
    /// Upper bounds in seconds, with the number of calls within each.
    within: Vec<(f64, f64)>,
}

impl Times {
    /// The mean, in milliseconds.
    pub fn mean(&self) -> f64 {
        1_000.0 * self.sum / self.count
    }

    /// The 99th percentile, in milliseconds: the upper bound of its bucket.
    pub fn p99(&self) -> f64 {
        let mut within = self.within.iter();
        let found = within.find(|(_, count)| *count >= 0.99 * self.count);
        1_000.0 * found.map_or(f64::INFINITY, |(bound, _)| *bound)
    }

    fn since(&self, before: &Self) -> Self {
        let of_before = |bound: f64| {
            let mut found = before.within.iter();
            found.find(|(other, _)| other.total_cmp(&bound).is_eq())
        };
        let within = self.within.iter().map(|(bound, count)| {
            let before = of_before(*bound).map_or(0.0, |(_, count)| *count);
            (*bound, count - before)
        });
        Self {
            count: self.count - before.count,
            sum: self.sum - before.sum,
            within: within.collect(),
        }
    }
}

/// Creates this number of jobs in dry runs with many clients at once: at an even rate, and as fast as
/// they can.
pub async fn admission(count: u64) -> Result<[Admission; 2], LoadError> {
    let product = Product::start().await?;
    create(&product.client, 500, Duration::ZERO).await?;
    Ok([
        measured(&product.client, count, PACE).await?,
        measured(&product.client, count, Duration::ZERO).await?,
    ])
}

async fn measured(client: &Client, count: u64, pace: Duration) -> Result<Admission, LoadError> {
    let before = metrics(client).await?;
    create(client, count, pace).await?;
    let after = metrics(client).await?;
    let of = |text: &str, name: &str, labels: &[(&str, &str)]| histogram(text, name, labels);
    let between = |name: &str, labels: &[(&str, &str)]| {
        of(&after, name, labels).since(&of(&before, name, labels))
    };
    let mut webhooks = BTreeMap::new();
    for kind in ["admit", "validating"] {
        let labels = [("type", kind), ("operation", "CREATE")];
        webhooks.insert(kind.to_owned(), between(WEBHOOK, &labels));
    }
    let labels = [("resource", "ipujobs"), ("verb", "POST")];
    Ok(Admission {
        webhooks,
        creation: between(REQUEST, &labels),
    })
}

/// Creates jobs, with at least this time between two of them.
async fn create(client: &Client, count: u64, pace: Duration) -> Result<(), LoadError> {
    let kind = jobs(client, "graphcore.ai", "v1alpha1", "IPUJob");
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut begins = Instant::now();
    stream::iter(0..count)
        .map(|number| {
            begins += pace;
            let turn = sleep_until(begins);
            let object = serde_json::from_value::<DynamicObject>(job(&format!("asked-{number}")));
            let (kind, dry) = (&kind, &dry);
            async move {
                let object = object.map_err(|error| LoadError::Missing(error.to_string()))?;
                turn.await;
                let made = kind.create(dry, &object).await;
                made.map(drop).map_err(api("create a job in a dry run"))
            }
        })
        .buffer_unordered(CLIENTS)
        .try_collect()
        .await
}

/// All histograms of this name with these labels, as one.
fn histogram(text: &str, name: &str, labels: &[(&str, &str)]) -> Times {
    let mut times = Times::default();
    let mut within: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        let wanted = |(key, value): &(&str, &str)| rest.contains(&format!("{key}=\"{value}\""));
        let value = line.rsplit(' ').next().and_then(|text| text.parse().ok());
        let (true, Some(value)) = (labels.iter().all(wanted), value) else {
            continue;
        };
        let value: f64 = value;
        if rest.starts_with("_sum{") {
            times.sum += value;
        } else if rest.starts_with("_count{") {
            times.count += value;
        } else if let Some((_, bound)) = rest.split_once("le=\"") {
            let bound = bound.split('"').next().unwrap_or_default();
            *within.entry(bound.to_owned()).or_default() += value;
        }
    }
    times.within = within
        .into_iter()
        .filter_map(|(bound, count)| Some((bound.parse().ok()?, count)))
        .collect();
    times.within.sort_by(|one, other| one.0.total_cmp(&other.0));
    times
}

impl Admission {
    /// The share of both webhooks in the time of a creation, in percent.
    pub fn share(&self) -> f64 {
        let of_webhooks: f64 = self.webhooks.values().map(|times| times.sum).sum();
        100.0 * of_webhooks / self.creation.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_read_and_the_former_one_subtracted() {
        let text = |count: u32| {
            format!(
                "{WEBHOOK}_bucket{{name=\"a\",type=\"admit\",le=\"0.005\"}} {count}\n\
                 {WEBHOOK}_bucket{{name=\"a\",type=\"admit\",le=\"+Inf\"}} {}\n\
                 {WEBHOOK}_sum{{name=\"a\",type=\"admit\"}} {}\n\
                 {WEBHOOK}_count{{name=\"a\",type=\"admit\"}} {}\n\
                 {WEBHOOK}_count{{name=\"a\",type=\"validating\"}} 7\n",
                count * 2,
                count,
                count * 2
            )
        };
        let of = |text: &str| histogram(text, WEBHOOK, &[("type", "admit")]);
        let times = of(&text(100)).since(&of(&text(50)));
        assert!((times.mean() - 500.0).abs() < 1e-9, "{times:?}");
        assert!(times.p99().is_infinite(), "half were late: {times:?}");
    }
}
