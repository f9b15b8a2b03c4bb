//! The sources of the answers of both ports.

use std::sync::Arc;
use std::time::Duration;

use ipu_partitions::controllers::ControllerPool;
use ipu_partitions::store::watch::Watched;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::Namespaces;

use super::query_permits::Queries;
use super::recent::RecentAnswers;

/// The sources of the answers.
#[derive(Clone)]
pub struct Sources {
    /// The IPUPartitions, as the watch last saw them.
    pub partitions: Watched,
    /// The V-IPU controllers.
    pub pool: Arc<ControllerPool>,
    /// The placement policy.
    pub guests: ActivePolicies,
    /// The usage of every namespace.
    pub namespaces: Namespaces,
    /// Waiting time after which capacity is reserved for a request.
    pub backfill_limit: Duration,
    /// The queries, which both ports answer one after the other.
    pub queries: Queries,
    /// Answers that all clients share.
    pub recent: RecentAnswers,
}

impl Sources {
    /// Whether the IPUPartitions are listed: before that, an answer would count no IPU as used.
    pub fn is_ready(&self) -> bool {
        self.partitions.is_listed()
    }
}
