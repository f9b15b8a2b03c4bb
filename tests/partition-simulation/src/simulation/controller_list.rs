//! The admin's list of controllers as a replica uses it, and what the replica remembers of these
//! controllers.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use ipu_api::ipupartition::ControllerRef;
use ipu_api::uid::Uid;
use ipu_partitions::controllers::duplicates::ListedIds;
use ipu_placement::known_sizes::KnownSizes;

use super::controllers::Controller;
use super::coverage::CoveragePoint;
use super::world::World;

impl World {
    /// All entries of the list, each with its controller: first names, and then second ones.
    fn entries(&self) -> impl Iterator<Item = (&ControllerRef, &Controller)> {
        let listed = self
            .controllers
            .iter()
            .filter(|controller| controller.is_listed);
        let first = listed.map(|controller| (&controller.reference, controller));
        let second = self.second_names.iter();
        first.chain(second.map(move |(entry, index)| (entry, &self.controllers[*index])))
    }

    /// The entries of the list that this replica uses: without the second names that it has found.
    pub(super) fn used_entries(
        &self,
        who: usize,
    ) -> impl Iterator<Item = (&ControllerRef, &Controller)> {
        let found = &self.replicas[who].second_names;
        self.entries()
            .filter(move |(entry, _)| !found.contains_key(&entry.name))
    }

    /// Whether the admin's list has this name, as a first or a second one.
    pub(super) fn is_in_list(&self, name: &str) -> bool {
        self.entries().any(|(entry, _)| entry.name == name)
    }

    /// Whether this is a second name of a controller.
    pub(super) fn is_second_name(&self, index: usize, name: &str) -> bool {
        let mut names = self.second_names.iter();
        names.any(|(entry, of)| *of == index && entry.name == name)
    }

    /// The present name of each controller that this replica knows by another one.
    pub(super) fn known_renames(&self, who: usize) -> BTreeMap<String, ControllerRef> {
        let mut renamed = self.renamed.clone();
        renamed.extend(self.replicas[who].second_names.clone());
        renamed
    }

    /// A replica compares the partitions of all entries of the list, as the operator does.
    pub(super) fn find_second_names(&mut self, who: usize) {
        if self.second_names.is_empty() {
            return;
        }
        let now = self.epoch + Duration::from_millis(self.event_queue.now());
        let mut duplicates = std::mem::take(&mut self.replicas[who].duplicates);
        let lists = self.entries().map(|(entry, controller)| ListedIds {
            name: &entry.name,
            ids: is_answering(controller).then(|| self.marked_ids(controller)),
        });
        let names = duplicates.compare(&lists.collect::<Vec<_>>(), now);
        let first_entry = |name: &str| {
            let mut entries = self.entries();
            let first = entries.find(|(entry, _)| entry.name == name);
            first.map(|(entry, _)| entry.clone())
        };
        let found: BTreeMap<String, ControllerRef> = names
            .into_iter()
            .filter_map(|(second, first)| Some((second, first_entry(&first)?)))
            .collect();
        for (second, first) in &found {
            self.history.renamed(second, &first.name);
        }
        self.replicas[who].duplicates = duplicates;
        if found != self.replicas[who].second_names {
            self.cover(CoveragePoint::SecondNameFound);
            self.note(|| format!("replica {who} knows the second names {:?}", found.keys()));
            self.replicas[who].second_names = found;
            self.list_changed();
        }
    }

    /// The partitions of the operator on a controller.
    fn marked_ids(&self, controller: &Controller) -> HashSet<Uid> {
        let ids = controller.made.keys();
        let of_operator = ids.filter(|id| self.settings.identity.marks(id));
        of_operator.map(|id| Uid::of(id)).collect()
    }

    /// A replica notes the IPUs that the controllers of the list report.
    pub(super) fn note_sizes(&mut self, who: usize) {
        let now = self.timestamp();
        let mut sizes = std::mem::take(&mut self.replicas[who].sizes);
        for (entry, controller) in self.used_entries(who) {
            let total = is_answering(controller).then_some(controller.reported);
            sizes.listed(&entry.name, total, now);
        }
        self.replicas[who].sizes = sizes;
    }

    /// The most IPUs that each controller has reported to this replica lately, without those that
    /// are renamed.
    pub(super) fn known_sizes(&mut self, who: usize) -> BTreeMap<String, u32> {
        let now = self.timestamp();
        let renamed = self.known_renames(who);
        let mut sizes = self.replicas[who].sizes.at(now);
        sizes.retain(|name, _| !renamed.contains_key(name));
        sizes
    }

    /// The leader writes the numbers of IPUs into the VIPUControllers.
    pub(super) fn publish_sizes(&mut self, who: usize) {
        let entries = self.used_entries(who);
        let answering = entries.filter(|(_, controller)| is_answering(controller));
        let sizes: Vec<(String, u32)> = answering
            .map(|(entry, controller)| (entry.name.clone(), controller.reported))
            .collect();
        let mut published = std::mem::take(&mut self.published_sizes);
        published.retain(|name, _| self.is_in_list(name));
        published.extend(sizes);
        self.published_sizes = published;
    }

    /// A new leader reads the numbers of IPUs from the VIPUControllers.
    pub(super) fn read_sizes(&mut self, who: usize) {
        let now = self.timestamp();
        let mut sizes = KnownSizes::default();
        for (name, total) in &self.published_sizes {
            sizes.listed(name, Some(*total), now);
        }
        self.replicas[who].sizes = sizes;
    }
}

fn is_answering(controller: &Controller) -> bool {
    !(controller.is_down || controller.is_blank || controller.denies)
}
