//! The writes and calls of the proxy, from a loop without decisions.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use vipu_client::model::CreateRequest;
use vipu_client::{Deadlines, VipuClient};

use super::super::bare::{AT_ONCE, write_one};
use super::super::vipu_controllers::{label, simulators};
use super::super::{Consumption, Load, LoadError};
use super::proxy::api_server;
use super::{CONTROLLERS, IPUS, Recorded, ipus_for};

/// Writes and updates the same number of objects as the proxy, and makes the same calls. Returns
/// the fastest run and its concurrency.
pub async fn bare_partitions(like: &Recorded) -> Result<(usize, Load), LoadError> {
    let count = like.load.count;
    let (plane, client) = api_server().await?;
    let simulators = simulators(CONTROLLERS, ipus_for(count * AT_ONCE.len())).await?;
    let mut vipu = Vec::new();
    for (index, simulator) in simulators.iter().enumerate() {
        let controller = simulator.controller(&label(index));
        vipu.push(VipuClient::new(&controller, Deadlines::default())?);
    }
    let objects = std::slice::from_ref(&like.object);
    let mut best: Option<(usize, Load)> = None;
    for (round, at_once) in AT_ONCE.into_iter().enumerate() {
        let (begun, used) = (Instant::now(), Consumption::of_api_server(&plane)?);
        stream::iter(0..count)
            .map(Ok)
            .try_for_each_concurrent(at_once, async |number| {
                let name = format!("bare-{round}-{number}");
                write_one(&client, objects, &like.load, name.clone()).await?;
                call(&vipu[number % CONTROLLERS], &name, like).await
            })
            .await?;
        let load = Load {
            count,
            took: begun.elapsed(),
            writes: BTreeMap::new(),
            api_server: Consumption::of_api_server(&plane)?.saturating_sub(used),
        };
        if best.as_ref().is_none_or(|(_, best)| load.took < best.took) {
            best = Some((at_once, load));
        }
    }
    best.ok_or_else(|| LoadError::Missing("the bare loop did not run".to_owned()))
}

/// The calls for one partition.
async fn call(client: &VipuClient, id: &str, like: &Recorded) -> Result<(), LoadError> {
    let count = like.load.count as u64;
    let each = |calls: u64| (calls + count / 2) / count;
    let request = CreateRequest {
        id: id.to_owned(),
        ipus: IPUS,
        gcds: 1,
        replicas: None,
        reconfigurable: false,
        relocatable: false,
    };
    client.create(&request).await?;
    for _ in 0..each(like.calls.statuses) {
        client.status(id).await?;
    }
    for _ in 0..each(like.calls.configs) {
        client.ipuof_config(id, 0).await?;
    }
    Ok(())
}
