//! The ends of injected faults.

use super::api_server::Key;
use super::event_queue::Event;
use super::faults::foreign;
use super::world::World;

/// The end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    ControllerIsUp(usize),
    Remembers(usize),
    Admits(usize),
    Removes(usize),
    LargeAgain(usize),
    Listed(usize),
    Opened(usize),
    CapacityReleased(usize, u64),
    Started(usize),
    BecomeLeader(usize),
    StepDown(usize),
    WatchIsQuick(usize),
    Restored(Key),
    BackupRestored,
}

impl World {
    /// Schedules a repair after these milliseconds.
    pub(super) fn repair_later(&mut self, delay: u64, repair: Repair) {
        self.event_queue.add(delay, Event::Repair(repair));
    }

    pub(super) fn repair(&mut self, repair: Repair) {
        self.note(|| format!("{repair:?}"));
        match repair {
            Repair::ControllerIsUp(index) => self.controllers[index].is_down = false,
            Repair::Admits(index) => self.controllers[index].denies = false,
            Repair::Remembers(index) => self.controllers[index].is_blank = false,
            Repair::Removes(index) => self.controllers[index].refuses_removals = false,
            Repair::Opened(index) => {
                let name = &self.controllers[index].reference.name;
                self.cordons.remove(name);
            }
            Repair::Listed(index) => {
                self.controllers[index].is_listed = true;
                self.list_changed();
            }
            Repair::LargeAgain(index) => self.controllers[index].largest = u32::MAX,
            Repair::CapacityReleased(index, number) => {
                let id = foreign(number);
                self.controllers[index].made.remove(&id);
                self.foreign.remove(&(index, id));
            }
            Repair::Started(who) => {
                if self.is_dead(who) {
                    self.start(who);
                }
            }
            Repair::BecomeLeader(who) => {
                let other = &self.replicas[1 - who];
                let is_gone = other.dead_until > 0 || other.stands_until > self.event_queue.now();
                if is_gone && !self.is_dead(who) {
                    self.become_leader(who);
                }
            }
            Repair::StepDown(who) => {
                if self.has_lease && self.replicas[1 - who].acts && !self.is_dead(1 - who) {
                    self.replicas[who].acts = false;
                }
            }
            Repair::WatchIsQuick(who) => self.replicas[who].lag = 0,
            Repair::Restored(key) => self.api.move_back(key),
            Repair::BackupRestored => self.restore(),
        }
    }
}
