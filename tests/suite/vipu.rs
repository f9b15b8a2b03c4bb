//! The V-IPU client against the simulated controller, in one process: every call, and every kind of
//! failure.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test helpers, which the lint does not recognise as tests"
)]

mod calls;
mod clusters;
mod failures;
mod invalid_replies;
mod inventories;
mod replies;
mod secure;
mod simulator;
mod users;

use std::time::Duration;

use ipu_partitions::store::watch::{Watched, watched};
use ipu_policies::namespace_usage::namespaces;
use ipu_runtime::scope::Scope;
use vipu_client::model::CreateRequest;
use vipu_client::{Deadlines, VipuClient};
use vipu_simulator::{Options, Simulator};

/// A pod of 16 IPUs whose work takes milliseconds.
async fn pod1() -> Simulator {
    Simulator::start(Options::quick("pod1", 16)).await.unwrap()
}

/// A client of it, with deadlines that are long enough for a busy machine.
fn client(simulator: &Simulator) -> VipuClient {
    VipuClient::new(&simulator.controller("pod1"), Deadlines::default()).unwrap()
}

/// A client with short deadlines.
fn hasty_client(simulator: &Simulator) -> VipuClient {
    let deadlines = Deadlines {
        connect: Duration::from_secs(5),
        read: Duration::from_millis(300),
        change: Duration::from_millis(300),
    };
    VipuClient::new(&simulator.controller("pod1"), deadlines).unwrap()
}

/// A ledger without partitions.
fn no_partitions() -> Watched {
    watched(namespaces().0, Scope::default()).0
}

/// A partition with this number of IPUs.
fn partition(id: &str, ipus: u32) -> CreateRequest {
    CreateRequest {
        id: id.to_owned(),
        ipus,
        gcds: 1,
        replicas: None,
        reconfigurable: false,
        relocatable: false,
    }
}
