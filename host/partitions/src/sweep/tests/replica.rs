//! A replica whose executor the tests of sweeps run.

use super::*;

/// What the executor of a replica uses.
pub(super) struct Replica {
    client: Client,
    pod_users: PodUsers,
    pool: ControllerPool,
    leadership: Leadership,
    released: Notify,
}

impl Replica {
    pub(super) fn leading_for(time: Duration, client: Client, pool: ControllerPool) -> Self {
        Self {
            pod_users: PodUsers::new(client.clone()),
            client,
            pool,
            leadership: Leadership::until(tokio::time::Instant::now() + time),
            released: Notify::new(),
        }
    }

    pub(super) fn executor(&self) -> Executor<'_> {
        Executor {
            client: &self.client,
            pod_users: &self.pod_users,
            pool: &self.pool,
            leadership: &self.leadership,
            released: &self.released,
        }
    }
}
