//! Measures the memory of each additional guest, and whether it is released.

use std::time::Duration;

use ipu_admission::chain_run::ChainRun;
use ipu_api::ipupolicy::Hook;
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_text::explain;

use super::{PolicyLoadError, creating, open, prepared, read, request, version};
use crate::operator_process::own_resident_kib;

/// Resident memory of this process, in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The number of guests that were prepared and called.
    pub guests: u32,
    /// Before any of them.
    pub before: u64,
    /// With all of them.
    pub with: u64,
    /// After they were dropped.
    pub after: u64,
}

impl Memory {
    /// The memory of each of them, in KiB.
    pub fn of_each(&self) -> u64 {
        self.with.saturating_sub(self.before) / u64::from(self.guests.max(1))
    }
}

/// Prepares this number of guests, each from another module, and calls each of them.
pub async fn memory(count: u8) -> Result<Memory, PolicyLoadError> {
    let (guests, folder) = open(Duration::from_secs(5)).await?;
    let module = read(&folder, "validation.wasm")?;
    // The first calls grow memory that all later calls use as well.
    let warm = ready(&guests, &module, 0..2).await?;
    ask(&guests, warm).await?;
    let before = resident()?;
    let many = ready(&guests, &module, 2..2 + count).await?;
    ask(&guests, many).await?;
    let with = resident()?;
    guests.set_chain(Hook::Validation, HookChain::default());
    Ok(Memory {
        guests: count.into(),
        before,
        with,
        after: resident()?,
    })
}

async fn ready(
    guests: &ActivePolicies,
    module: &[u8],
    numbers: std::ops::Range<u8>,
) -> Result<HookChain, PolicyLoadError> {
    let mut stages = Vec::new();
    for number in numbers {
        let bytes = version(module, number);
        let name = format!("number-{number}");
        stages.push(vec![
            prepared(guests, Hook::Validation, &name, bytes).await?,
        ]);
    }
    Ok(HookChain {
        stages,
        shadows: Vec::new(),
    })
}

async fn ask(guests: &ActivePolicies, chain: HookChain) -> Result<(), PolicyLoadError> {
    let count = chain.stages.len();
    guests.set_chain(Hook::Validation, chain);
    let request = request(0)?;
    let answer = ChainRun::new(guests, &request, creating())
        .run_validation()
        .await;
    if answer.called.len() != count {
        return Err(PolicyLoadError::Wrong(format!(
            "not all answer: {answer:?}"
        )));
    }
    Ok(())
}

fn resident() -> Result<u64, PolicyLoadError> {
    own_resident_kib().map_err(|error| PolicyLoadError::Wrong(explain(&error)))
}
