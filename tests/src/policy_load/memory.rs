//! What a guest more takes of memory, and whether it comes back.

use std::time::Duration;

use ipu_admission::hook_chain::Chain;
use ipu_api::ipupolicy::Hook;
use ipu_policies::guests::{Guests, Roster};
use ipu_text::explain;

use super::{PolicyLoadError, creating, open, prepared, read, request, version};
use crate::operator_process::own_resident_kib;

/// Resident memory of this process, in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// How many guests were made ready and asked.
    pub guests: u32,
    /// Before any of them.
    pub before: u64,
    /// With all of them.
    pub with: u64,
    /// Once they have gone.
    pub after: u64,
}

impl Memory {
    /// What each of them took, in KiB.
    pub fn of_each(&self) -> u64 {
        self.with.saturating_sub(self.before) / u64::from(self.guests.max(1))
    }
}

/// Makes so many guests ready, each another module, and asks each.
pub async fn memory(count: u8) -> Result<Memory, PolicyLoadError> {
    let (guests, folder) = open(Duration::from_secs(5)).await?;
    let module = read(&folder, "validation.wasm")?;
    // The first ones make room that all others use as well.
    let warm = ready(&guests, &module, 0..2).await?;
    ask(&guests, warm).await?;
    let before = resident()?;
    let many = ready(&guests, &module, 2..2 + count).await?;
    ask(&guests, many).await?;
    let with = resident()?;
    guests.put(Hook::Validation, Roster::default());
    Ok(Memory {
        guests: count.into(),
        before,
        with,
        after: resident()?,
    })
}

async fn ready(
    guests: &Guests,
    module: &[u8],
    numbers: std::ops::Range<u8>,
) -> Result<Roster, PolicyLoadError> {
    let mut seats = Vec::new();
    for number in numbers {
        let bytes = version(module, number);
        let name = format!("number-{number}");
        seats.push(vec![
            prepared(guests, Hook::Validation, &name, bytes).await?,
        ]);
    }
    Ok(Roster {
        seats,
        trials: Vec::new(),
    })
}

async fn ask(guests: &Guests, roster: Roster) -> Result<(), PolicyLoadError> {
    let count = roster.seats.len();
    guests.put(Hook::Validation, roster);
    let request = request(0)?;
    let answer = Chain::new(guests, &request, creating()).validated().await;
    if answer.asked.len() != count {
        return Err(PolicyLoadError::Wrong(format!(
            "not all answer: {answer:?}"
        )));
    }
    Ok(())
}

fn resident() -> Result<u64, PolicyLoadError> {
    own_resident_kib().map_err(|error| PolicyLoadError::Wrong(explain(&error)))
}
