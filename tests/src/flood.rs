//! Useless load on the operator's ports, as any Pod can create it. It runs in a separate process in
//! the network of a Pod. Several Pods together create the whole load.

mod attacks;
pub mod delays;
mod exchange;
pub mod probes;
mod reviews;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use attacks::Sent;

pub use exchange::{exchange, exchange_tls};
pub use reviews::hostile_review;

/// Period at which a process prints its counts.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The targets of the load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Targets {
    /// Ports to which idle connections are opened.
    pub idle: Vec<SocketAddr>,
    /// Ports of webhooks.
    pub webhooks: Vec<SocketAddr>,
    /// Ports with TLS that require a token, and a path of each.
    pub guarded: Vec<(SocketAddr, String)>,
    /// Ports in plain text that serve `POST /query`.
    pub queries: Vec<SocketAddr>,
    /// Ports with TLS that serve `POST /partitions`.
    pub partitions: Vec<SocketAddr>,
}

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Idle connections.
    Idle,
    /// Reviews whose trees would take too much memory.
    Hostile,
    /// Reviews for a validation policy.
    Valid,
    /// Reviews for a defaulting policy.
    Defaulted,
    /// Reviews with a `uid` of a mebibyte.
    LongUid,
    /// Reviews of the largest allowed size, with the last byte missing.
    Unfinished,
    /// Bodies that are sent byte by byte.
    Dribbled,
    /// Invalid tokens.
    Token,
    /// Queries of capacity.
    Query,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::Hostile,
        Self::Valid,
        Self::Defaulted,
        Self::LongUid,
        Self::Unfinished,
        Self::Dribbled,
        Self::Token,
        Self::Query,
    ];
}

/// Number of ends of each kind of load: with an answer, or with a closed connection.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; Kind::ALL.len()]);

impl Counts {
    fn count(&self, kind: Kind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn read(&self) -> BTreeMap<Kind, u64> {
        let read = |kind| (kind, self.0[kind as usize].load(Ordering::Relaxed));
        Kind::ALL.map(read).into()
    }
}

/// Begins to load the targets.
pub fn begin(targets: Targets, counts: &Arc<Counts>) -> JoinSet<()> {
    let mut load = JoinSet::new();
    let sent = Arc::new(Sent::new());
    for address in targets.webhooks {
        attacks::webhooks(&mut load, address, (&sent, counts));
    }
    for (address, path) in targets.guarded {
        attacks::tokens(&mut load, address, &path, counts);
    }
    for address in targets.queries {
        attacks::queries(&mut load, address, (&sent, counts));
    }
    for address in targets.partitions {
        attacks::partitions(&mut load, address, (&sent, counts));
    }
    for address in targets.idle {
        attacks::idle(&mut load, address, counts);
    }
    load
}

/// Loads the targets until the process ends. Prints the counts each second as a line of JSON.
pub async fn run(targets: Targets) -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let counts = Arc::default();
    let _load = begin(targets, &counts);
    loop {
        println!("{}", serde_json::to_string(&counts.read())?);
        sleep(REPORT_PERIOD).await;
    }
}

#[cfg(test)]
mod tests;
