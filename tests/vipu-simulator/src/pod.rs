//! Pure: one simulated pod of IPUs and its partitions, as a state machine over a time that is
//! passed in.

mod cluster;
mod occupancy;
mod rejection;
mod request;
mod timings;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::allocation::Block;
pub use cluster::Cluster;
pub use occupancy::Occupancy;
pub use rejection::Rejection;
pub use request::PartitionSpec;
pub use timings::Timings;

/// Automatic resets of a partition before the simulated server gives up.
pub const AUTO_RESETS_MAX: u32 = 3;

/// A pod of IPUs, and the partitions that use them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    /// Its name, which is also the name of its allocation.
    pub name: String,
    /// Number of its IPUs.
    pub ipus: u32,
    /// Durations of its work.
    pub timings: Timings,
    /// Its clusters.
    clusters: Vec<Cluster>,
    partitions: BTreeMap<String, Partition>,
    /// The IPUs of all partitions, past and present, and the time of those that are gone.
    #[serde(default)]
    occupancy: Occupancy,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// Its id.
    pub id: String,
    /// Its IPUs.
    pub block: Block,
    /// Its cluster.
    pub cluster: String,
    /// Creation time.
    #[serde(default)]
    pub since: Timestamp,
    /// Its GCDs.
    pub gcds: u32,
    /// Its replicas.
    pub replicas: u32,
    /// Whether it may be reconfigured.
    pub reconfigurable: bool,
    /// Whether it may be moved, by the last create or reset.
    #[serde(default)]
    pub relocatable: bool,
    /// Its stage.
    pub stage: Stage,
    /// Its errors.
    pub errors: Vec<String>,
    /// The error that it gets once it is formed.
    pub doom: Option<String>,
    /// Whether only a forced removal succeeds.
    pub needs_force: bool,
    /// Number of resets that the server made by itself.
    pub auto_resets: u32,
    /// The time of the last one.
    pub last_auto_reset: Option<Timestamp>,
}

/// The stage of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It is being formed until this time.
    Creating(Timestamp),
    /// It can be used.
    Active,
    /// It is being reset until this time.
    Resetting(Timestamp),
    /// It is being removed until this time.
    Removing(Timestamp),
    /// In error.
    Failed,
}

impl Pod {
    /// A pod without partitions.
    pub fn new(name: &str, ipus: u32, timings: Timings) -> Self {
        Pod {
            name: name.to_owned(),
            ipus,
            timings,
            clusters: cluster::divided(ipus, &[name.to_owned()]),
            partitions: BTreeMap::new(),
            occupancy: Occupancy::default(),
        }
    }

    /// The same pod, divided equally into clusters with these names.
    #[must_use]
    pub fn with_clusters(self, names: &[String]) -> Self {
        Pod {
            clusters: cluster::divided(self.ipus, names),
            ..self
        }
    }

    /// Its clusters.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// Its partitions at `now`, by id.
    pub fn partitions(&mut self, now: Timestamp) -> impl Iterator<Item = &Partition> {
        self.settle(now);
        self.partitions.values()
    }

    /// One partition at `now`.
    pub fn partition(&mut self, id: &str, now: Timestamp) -> Result<&Partition, Rejection> {
        self.find(id, now).map(|partition| &*partition)
    }

    /// IPUs in no partition, and the size of the largest that fits.
    pub fn free(&mut self, now: Timestamp) -> (u32, u32) {
        self.settle(now);
        let taken = self.taken();
        let used: u32 = taken.iter().map(|block| block.size).sum();
        let fits = self.clusters.iter().map(|cluster| cluster.largest(&taken));
        (self.ipus - used, fits.max().unwrap_or_default())
    }

    /// Returns the time of IPUs in partitions until `now`.
    pub fn occupancy(&mut self, now: Timestamp) -> Occupancy {
        self.settle(now);
        let mut occupancy = self.occupancy;
        for partition in self.partitions.values() {
            occupancy.add(partition.block.size, partition.since, now);
        }
        occupancy
    }

    /// Begins to form a partition. With a `doom`, the partition breaks once it is formed. Returns
    /// the time at which the work ends.
    pub fn create(
        &mut self,
        spec: &PartitionSpec,
        doom: Option<String>,
        now: Timestamp,
    ) -> Result<Timestamp, Rejection> {
        self.settle(now);
        let checked = self.check(spec)?;
        let cluster = &self.clusters[checked.cluster];
        if self.partitions.contains_key(&spec.id) {
            return Err(Rejection::Exists(spec.id.clone()));
        }
        let taken = self.taken();
        let block = cluster.place(spec.ipus, &taken).ok_or(Rejection::Full {
            ipus: spec.ipus,
            largest: cluster.largest(&taken),
        })?;
        let until = now + Duration::from_millis(self.timings.forming_ms);
        let partition = Partition {
            id: spec.id.clone(),
            block,
            cluster: cluster.name.clone(),
            since: now,
            gcds: checked.gcds,
            replicas: checked.replicas,
            reconfigurable: spec.reconfigurable,
            relocatable: spec.relocatable,
            stage: Stage::Creating(until),
            errors: Vec::new(),
            doom,
            needs_force: false,
            auto_resets: 0,
            last_auto_reset: None,
        };
        self.occupancy.begin(block.size);
        self.partitions.insert(spec.id.clone(), partition);
        Ok(until)
    }

    /// Begins to remove a partition. Returns the time at which the work ends.
    pub fn remove(
        &mut self,
        id: &str,
        force: bool,
        now: Timestamp,
    ) -> Result<Timestamp, Rejection> {
        let until = now + Duration::from_millis(self.timings.removing_ms);
        let partition = self.find(id, now)?;
        if let Stage::Removing(_) = partition.stage {
            return Err(partition.busy());
        }
        if partition.needs_force && !force {
            return Err(partition.broken());
        }
        partition.stage = Stage::Removing(until);
        Ok(until)
    }

    /// Begins to reset a partition, in error or not. Returns the time at which the work ends.
    pub fn reset(
        &mut self,
        id: &str,
        relocatable: bool,
        now: Timestamp,
    ) -> Result<Timestamp, Rejection> {
        let until = now + Duration::from_millis(self.timings.resetting_ms);
        let partition = self.find(id, now)?;
        match partition.stage {
            Stage::Active | Stage::Failed => {
                partition.stage = Stage::Resetting(until);
                partition.relocatable = relocatable;
                Ok(until)
            }
            Stage::Creating(_) | Stage::Resetting(_) | Stage::Removing(_) => Err(partition.busy()),
        }
    }

    /// Returns a partition that can be used, or why it cannot be used.
    pub fn usable(&mut self, id: &str, now: Timestamp) -> Result<&Partition, Rejection> {
        let partition = self.formed(id, now)?;
        match partition.stage {
            Stage::Failed => Err(partition.broken()),
            _ => Ok(partition),
        }
    }

    /// Returns a partition that has its IPUs, in error or not, or why it has none.
    pub fn formed(&mut self, id: &str, now: Timestamp) -> Result<&Partition, Rejection> {
        let partition = self.find(id, now)?;
        match partition.stage {
            Stage::Active | Stage::Failed => Ok(partition),
            Stage::Creating(_) | Stage::Resetting(_) | Stage::Removing(_) => Err(partition.busy()),
        }
    }

    /// Breaks a partition in any stage.
    pub fn break_down(
        &mut self,
        id: &str,
        error: &str,
        needs_force: bool,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        let partition = self.find(id, now)?;
        partition.stage = Stage::Failed;
        partition.errors.push(error.to_owned());
        partition.needs_force = needs_force;
        Ok(())
    }

    /// Resets a partition as the server does by itself when an IPU-Machine returns.
    pub fn auto_reset(&mut self, id: &str, now: Timestamp) -> Result<Timestamp, Rejection> {
        let relocatable = self.find(id, now)?.relocatable;
        let until = self.reset(id, relocatable, now)?;
        let partition = self.find(id, now)?;
        if partition.auto_resets == AUTO_RESETS_MAX {
            partition.stage = Stage::Failed;
            return Err(partition.broken());
        }
        partition.auto_resets += 1;
        partition.last_auto_reset = Some(now);
        Ok(until)
    }

    /// Creates a partition at once, as an admin does with the V-IPU command line.
    pub fn take(&mut self, spec: &PartitionSpec, now: Timestamp) -> Result<(), Rejection> {
        self.create(spec, None, now)?;
        self.find(&spec.id, now)?.stage = Stage::Active;
        Ok(())
    }

    /// Forgets a partition at once.
    pub fn forget(&mut self, id: &str, now: Timestamp) -> Result<(), Rejection> {
        let gone = self.find(id, now)?.clone();
        self.partitions.remove(id);
        self.occupancy.add(gone.block.size, gone.since, now);
        Ok(())
    }

    /// Whether no work on a partition is under way.
    pub fn is_idle(&mut self, id: &str, now: Timestamp) -> bool {
        self.settle(now);
        let stage = self.partitions.get(id).map(|partition| &partition.stage);
        matches!(stage, None | Some(Stage::Active | Stage::Failed))
    }

    /// Ends all work that is under way, however long it would have taken.
    pub fn finish(&mut self, now: Timestamp) {
        for partition in self.partitions.values_mut() {
            match &mut partition.stage {
                Stage::Creating(until) | Stage::Resetting(until) | Stage::Removing(until) => {
                    *until = now;
                }
                Stage::Active | Stage::Failed => {}
            }
        }
        self.settle(now);
    }

    /// Ends all work that is due.
    fn settle(&mut self, now: Timestamp) {
        for partition in self.partitions.values_mut() {
            match partition.stage {
                Stage::Creating(until) if until <= now => match partition.doom.take() {
                    Some(doom) => {
                        partition.errors.push(doom);
                        partition.stage = Stage::Failed;
                    }
                    None => partition.stage = Stage::Active,
                },
                Stage::Resetting(until) if until <= now => {
                    partition.errors.clear();
                    partition.needs_force = false;
                    partition.stage = Stage::Active;
                }
                Stage::Creating(_)
                | Stage::Resetting(_)
                | Stage::Removing(_)
                | Stage::Active
                | Stage::Failed => {}
            }
        }
        let occupancy = &mut self.occupancy;
        self.partitions.retain(|_, partition| {
            let Stage::Removing(until) = partition.stage else {
                return true;
            };
            let is_gone = until <= now;
            if is_gone {
                occupancy.add(partition.block.size, partition.since, until);
            }
            !is_gone
        });
    }

    fn find(&mut self, id: &str, now: Timestamp) -> Result<&mut Partition, Rejection> {
        self.settle(now);
        self.partitions
            .get_mut(id)
            .ok_or_else(|| Rejection::Unknown(id.to_owned()))
    }

    fn taken(&self) -> Vec<Block> {
        self.partitions
            .values()
            .map(|partition| partition.block)
            .collect()
    }
}

impl Partition {
    fn busy(&self) -> Rejection {
        Rejection::Busy {
            id: self.id.clone(),
            stage: self.stage,
        }
    }

    fn broken(&self) -> Rejection {
        Rejection::Broken {
            id: self.id.clone(),
            errors: self.errors.join("; "),
        }
    }
}

#[cfg(test)]
mod tests;
