//! Counts writes as the API server counts them: by verb, resource and subresource. Refused ones
//! cost as much as others. Dry runs, which store nothing, are counted apart (`TRY POST pods`).

use std::collections::BTreeMap;

use http::Request;
use kube::Client;

/// Writes so far, by method and resource: `POST pods`, `PATCH ipujobs/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes(BTreeMap<String, u64>);

impl Writes {
    /// The counts of the API server so far, from its metrics.
    pub async fn so_far(client: &Client) -> Result<Self, kube::Error> {
        let request = Request::get("/metrics").body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        Ok(Self::parse(&client.request_text(request).await?))
    }

    /// The writes since `before`, without Leases and without `others`.
    pub fn since(&self, before: &Self, others: &[&str]) -> BTreeMap<String, u64> {
        let counted = self.0.iter().filter_map(|(what, count)| {
            let new = count - before.0.get(what).unwrap_or(&0);
            let is_ours = !what.ends_with(" leases") && !others.contains(&what.as_str());
            (new > 0 && is_ours).then(|| (what.clone(), new))
        });
        counted.collect()
    }

    fn parse(metrics: &str) -> Self {
        let mut writes = BTreeMap::new();
        let lines = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("apiserver_request_total{"));
        for line in lines {
            let Some((labels, count)) = line.rsplit_once("} ") else {
                continue;
            };
            let label = |name: &str| {
                let mut pairs = labels
                    .split("\",")
                    .filter_map(|pair| pair.split_once("=\""));
                pairs
                    .find(|(found, _)| *found == name)
                    .map_or("", |(_, value)| value.trim_end_matches('"'))
            };
            let verb = label("verb");
            if !["POST", "PUT", "PATCH", "APPLY", "DELETE"].contains(&verb) {
                continue;
            }
            let resource = match label("subresource") {
                "" => label("resource").to_owned(),
                part => format!("{}/{part}", label("resource")),
            };
            // A dry run stores nothing.
            let trial = if label("dry_run").is_empty() {
                ""
            } else {
                "TRY "
            };
            let what = format!("{trial}{verb} {resource}");
            let count: f64 = count.trim().parse().unwrap_or_default();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a counter is whole and not negative"
            )]
            let count = count as u64;
            *writes.entry(what).or_default() += count;
        }
        Self(writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="graphcore.ai",resource="ipujobs",scope="resource",subresource="status",verb="PATCH",version="v1alpha1"} 5
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="events",scope="resource",subresource="",verb="PATCH",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="LIST",version="v1"} 2
apiserver_request_total{code="201",component="apiserver",dry_run="All",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 4
"#;

    #[test]
    fn refused_writes_are_counted_and_reads_are_not() {
        let writes = Writes::parse(METRICS);
        let before = Writes(BTreeMap::from([("POST pods".to_owned(), 2)]));
        let counted: Vec<_> = writes.since(&before, &[]).into_iter().collect();
        let wanted = [
            ("PATCH events", 9),
            ("PATCH ipujobs/status", 5),
            ("POST pods", 8),
            ("TRY POST pods", 4),
        ];
        assert_eq!(
            counted,
            wanted.map(|(what, count)| (what.to_owned(), count))
        );
        assert_eq!(writes.since(&before, &["POST pods"]).len(), 3);
    }
}
