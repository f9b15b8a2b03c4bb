//! A native Pod that is deleted before its partition is ready.

use cluster::wait::{Seen, until};
use harness::demo::{CleanupError, partitions_of};
use k8s_openapi::api::core::v1::Pod;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{container, create, delete, is_gated, pod};
use crate::disruptions::SERVES;
use crate::fixture::{Fixture, PATIENCE};
use crate::simulators::{form_in, reset};

/// Longer than the operator takes to notice and delete a Pod.
const FORMING: u64 = 10_000;

/// A Pod without an owner that requests this number of IPUs and serves until it is deleted.
pub(crate) fn bare(name: &str, ipus: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container(ipus, SERVES)]},
    })
}

/// A Pod that is deleted while its partition forms leaves no object and no partition.
pub(crate) fn is_deleted_while_its_partition_forms(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let (small, _) = fixture.controllers();
        form_in(small, FORMING).await?;
        create::<Pod>(fixture, bare("early", 4)).await?;
        until("the partition to form", PATIENCE, async || {
            let ids = partitions_of(small).await?;
            Ok::<_, CleanupError>(Seen::when(ids, |ids| ids.len() == 1))
        })
        .await?;
        assert!(is_gated(&pod(fixture, "early").await?), "it waits");
        delete(fixture, "pod/early").await?;
        reset(small).await?;
        fixture.clear().await
    })
}
