//! Shared state of the parts of the simulator: the pod, the orders and the journal, behind one
//! lock.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::codes::Codes;
use crate::endless::Taken;
use crate::faults::{Down, Effects, Method, Order, Orders};
use crate::journal::{Call, Journal};
use crate::pod::{Pod, Rejection};
use crate::store;
use crate::users::{USER_ID, Users};

/// Period of the checks whether the work of a call was ended early.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The state of the simulator.
#[derive(Debug)]
pub struct World {
    /// The pod and its partitions.
    pub pod: Pod,
    /// The active faults.
    pub orders: Orders,
    /// The calls.
    pub journal: Journal,
    /// The codes of refusals.
    pub codes: Codes,
    /// The required gRPC metadata, by name.
    pub required: BTreeMap<String, String>,
    /// The users that see each partition.
    pub users: Users,
}

/// The simulator's state, shared by its two ports.
#[derive(Debug)]
pub struct Server {
    /// Bytes that callers have read of endless replies.
    pub taken: Taken,
    world: Mutex<World>,
    down: watch::Sender<Option<Down>>,
    file: Option<PathBuf>,
}

impl Server {
    /// Returns a server for `pod` that serves callers with the `required` metadata. It stores the
    /// pod in `file`, if there is one.
    pub fn new(pod: Pod, file: Option<PathBuf>, required: BTreeMap<String, String>) -> Self {
        Server {
            taken: Taken::default(),
            world: Mutex::new(World {
                pod,
                orders: Orders::default(),
                journal: Journal::default(),
                codes: Codes::default(),
                required,
                users: Users::default(),
            }),
            down: watch::Sender::new(None),
            file,
        }
    }

    /// Reads or changes the current state, and stores the pod if it changed.
    pub fn with<T>(&self, work: impl FnOnce(&mut World, Timestamp) -> T) -> T {
        let mut world = self.world.lock();
        let before = self.file.is_some().then(|| world.pod.clone());
        let result = work(&mut world, Timestamp::now());
        if let (Some(file), Some(before)) = (&self.file, before)
            && before != world.pod
            && let Err(error) = store::save(file, &world.pod)
        {
            tracing::error!(file = %file.display(), %error, "the partitions were not kept");
        }
        let down = world.orders.down();
        self.down.send_if_modified(|known| {
            let changed = *known != down;
            *known = down;
            changed
        });
        result
    }

    /// Orders a fault. Returns the number of the order.
    pub fn order(&self, order: Order) -> u32 {
        self.with(|world, _| world.orders.add(order))
    }

    /// Removes all orders.
    pub fn clear(&self) {
        self.with(|world, _| world.orders.clear());
    }

    /// The calls after number `after`, oldest first.
    pub fn calls(&self, after: u64) -> Vec<Call> {
        self.with(|world, _| world.journal.after(after))
    }

    /// Follows whether the server can be reached.
    pub(super) fn follow_down(&self) -> watch::Receiver<Option<Down>> {
        self.down.subscribe()
    }

    /// Records a call and returns its faults. `None`: the server is down. Its connections end a
    /// moment after the order, and no call begins after it.
    pub(super) fn begin(&self, method: Method, partition: &str) -> Option<(OpenCall<'_>, Effects)> {
        self.with(|world, now| {
            if world.orders.down().is_some() {
                return None;
            }
            let number = world.journal.begin(method, partition, now);
            let effects = world.orders.strike(method);
            let call = OpenCall {
                server: self,
                number,
            };
            Some((call, effects))
        })
    }

    /// Waits until the work on a partition is done: at `until`, or earlier if an order ends all
    /// work.
    pub(super) async fn wait(&self, id: &str, until: Timestamp) {
        loop {
            let left = until.duration_since(Timestamp::now());
            let left = Duration::try_from(left).unwrap_or_default();
            if left.is_zero() || self.with(|world, now| world.pod.is_idle(id, now)) {
                return;
            }
            tokio::time::sleep(left.min(CHECK_INTERVAL)).await;
        }
    }

    /// Returns why a caller with this metadata is refused. `None`: it is served.
    pub(super) fn refuse_stranger(&self, headers: &HeaderMap) -> Option<tonic::Status> {
        self.with(|world, _| {
            let wrong = world.required.iter().find(|(name, value)| {
                let given = headers.get(name.as_str());
                given.is_none_or(|given| given.as_bytes() != value.as_bytes())
            });
            wrong.map(|(name, _)| {
                let code = tonic::Code::from_i32(world.codes.stranger as i32);
                tonic::Status::new(code, format!("the metadata {name} is not accepted"))
            })
        })
    }

    /// Returns the user that this metadata names. Without one, the name is empty.
    pub(super) fn user(headers: &HeaderMap) -> String {
        let name = headers.get(USER_ID).map(HeaderValue::as_bytes);
        String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
    }

    /// Returns why this user may not see a partition of another user. `None`: the user may see it.
    pub(super) fn hide(&self, user: &str, partition: &str) -> Option<tonic::Status> {
        let code = self.with(|world, _| world.users.hidden(user, partition))?;
        let text = format!("there is nothing to be seen of partition {partition:?}");
        Some(tonic::Status::new(tonic::Code::from_i32(code as i32), text))
    }

    /// Returns the status of a rejection.
    pub(super) fn status(&self, rejection: &Rejection) -> tonic::Status {
        let code = self.with(|world, _| world.codes.code(rejection));
        tonic::Status::new(tonic::Code::from_i32(code as i32), rejection.to_string())
    }
}

/// A call in progress. If it is dropped without an end, its caller has gone away.
#[derive(Debug)]
pub(super) struct OpenCall<'a> {
    server: &'a Server,
    number: u64,
}

impl OpenCall<'_> {
    /// Records how the call ended.
    pub(super) fn end(&self, outcome: &str) {
        self.server
            .with(|world, now| world.journal.end(self.number, outcome, now));
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.end("left");
    }
}
