//! Permits of queries: any client may send queries, so a process answers one at a time.

use std::net::IpAddr;
use std::time::Duration;

use ipu_runtime::fair_semaphore::{FairPermit, FairSemaphore};

use super::problem::{Kind, Problem};

/// Queries that are answered at the same time. The guest host permits as many dry runs.
const CONCURRENCY: usize = 1;

/// Longest time that a query waits for those before it.
pub(super) const WAIT: Duration = Duration::from_secs(5);

/// The queries of a process. Clones share the permit.
#[derive(Clone, Debug)]
pub struct Queries(FairSemaphore);

impl Default for Queries {
    fn default() -> Self {
        Self(FairSemaphore::new(CONCURRENCY))
    }
}

impl Queries {
    /// Waits for the permit of a query from this address, which ends on drop.
    pub(super) async fn permit(
        &self,
        address: IpAddr,
        wait: Duration,
    ) -> Result<FairPermit, Problem> {
        let permit = tokio::time::timeout(wait, self.0.acquire(Some(address.into()))).await;
        permit.map_err(|_| {
            let detail = format!(
                "other queries have been in progress for {} s; try again",
                wait.as_secs()
            );
            Problem::new(Kind::Unavailable, detail).with_header("retry-after", "1")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_query_has_the_permit_and_others_must_retry() {
        let (queries, address) = (Queries::default(), IpAddr::from([10, 0, 0, 1]));
        let permit = queries.permit(address, WAIT).await.unwrap();
        let other = queries.clone();
        let late = other.permit(address, Duration::ZERO).await.unwrap_err();
        assert_eq!(late.kind, Kind::Unavailable);
        assert_eq!(late.headers, [("retry-after", "1".to_owned())]);
        drop(permit);
        assert!(other.permit(address, WAIT).await.is_ok());
    }
}
