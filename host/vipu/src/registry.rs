//! Follows the ConfigMap that lists the V-IPU controllers, and keeps one client for each.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use ipu_api::ipupartition::ControllerRef;
use ipu_api::vipu_controller::CordonStates;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::auth::{self, AuthState};
use super::client::{Deadlines, VipuClient};
use super::controllers::{self, EntryProblem, KEY};
use super::cordon::{self, CordonRequests};
use super::create_scope::CreateScope;
use super::departed::{self, Departed};
use super::error::VipuError;
use super::replies::Replies;

/// The known V-IPU controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The controllers in the order in which the operator tries them.
    pub entries: Vec<ControllerRef>,
    /// All entries of the list: `entries`, and those that name one of them a second time.
    pub listed: Vec<ControllerRef>,
    /// The second names of controllers in the list, each with the first one. They count as renamed.
    pub duplicates: BTreeMap<String, String>,
    /// By name of a listed controller: where partitions are created. Missing: the controller
    /// chooses.
    pub scopes: BTreeMap<String, CreateScope>,
    /// The cordoned controllers, listed or not.
    pub cordons: CordonStates,
    /// Controllers that have left the list, and the admin's information about them.
    pub departed: Departed,
    /// Invalid entries.
    pub problems: Vec<EntryProblem>,
    /// Source of the list.
    pub source: Source,
}

/// Source of the list of controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// None yet.
    #[default]
    NotRead,
    /// The current ConfigMap.
    Current,
    /// A ConfigMap that has been deleted.
    ConfigMapGone,
    /// An earlier ConfigMap: its key has been removed.
    KeyGone,
}

/// The V-IPU controllers and their clients.
#[derive(Debug)]
pub struct Registry {
    known: watch::Sender<Arc<Known>>,
    /// Requests of admins in VIPUControllers. Locked while `known` changes.
    cordon_requests: Mutex<CordonRequests>,
    clients: Mutex<HashMap<String, VipuClient>>,
    deadlines: Deadlines,
    auth: watch::Receiver<AuthState>,
    replies: Replies,
}

impl Registry {
    /// A registry without controllers. Its clients have these deadlines, and use plain text without
    /// credentials.
    pub fn new(deadlines: Deadlines) -> Self {
        Self::with_auth(deadlines, auth::plain())
    }

    /// A registry whose clients authenticate each call with the current value of `auth`.
    pub fn with_auth(deadlines: Deadlines, auth: watch::Receiver<AuthState>) -> Self {
        Registry {
            known: watch::Sender::new(Arc::default()),
            cordon_requests: Mutex::default(),
            clients: Mutex::default(),
            deadlines,
            auth,
            replies: Replies::default(),
        }
    }

    /// The currently known controllers.
    pub fn known(&self) -> Arc<Known> {
        self.known.borrow().clone()
    }

    /// The known controllers and their changes.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Known>> {
        self.known.subscribe()
    }

    /// The client of a controller, listed or not. The operator still removes its partitions from an
    /// unlisted controller, at the address in its name. Must be called within a tokio runtime.
    pub fn client(&self, controller: &ControllerRef) -> Result<VipuClient, VipuError> {
        // A status that somebody wrote by hand must not redirect calls.
        let known = self.known();
        let listed = known
            .entries
            .iter()
            .find(|entry| entry.name == controller.name);
        let address = controllers::name(&controller.host, controller.port);
        if listed.is_none() && controller.name != address {
            return Err(VipuError::UnlistedAddress { address });
        }
        let controller = listed.unwrap_or(controller);
        // All clients of a controller share its connection, also after a change of the scope.
        let scope = known.scopes.get(&controller.name).cloned();
        let scope = scope.unwrap_or_default();
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&controller.name) {
            return Ok(client.clone().creating_in(scope));
        }
        let auth = self.auth.clone();
        let client = VipuClient::within_budget(controller, self.deadlines, auth, &self.replies)?;
        clients.insert(controller.name.clone(), client.clone());
        Ok(client.creating_in(scope))
    }

    /// Follows the ConfigMap after each change until `objects` end, which those of a watch never
    /// do. After an error of the watch, the last list stays until the watch recovers.
    pub async fn follow<E: Display>(
        &self,
        objects: impl Stream<Item = Result<Option<ConfigMap>, E>>,
    ) {
        let mut objects = std::pin::pin!(objects);
        while let Some(object) = objects.next().await {
            match object {
                Ok(object) => self.take(object.as_ref()),
                Err(error) => tracing::warn!(%error, "failed to watch the list of controllers"),
            }
        }
    }

    /// Applies the current ConfigMap. `None`: it has been deleted.
    fn take(&self, object: Option<&ConfigMap>) {
        let requests = self.cordon_requests.lock();
        let before = self.known();
        let mut known = read(&before, object).without(&before.duplicates);
        known.cordons = cordon::states(&requests, &known.entries);
        if known == *before {
            return;
        }
        report(&known);
        self.clients
            .lock()
            .retain(|name, _| known.listed.iter().any(|entry| entry.name == *name));
        self.known.send_replace(Arc::new(known));
    }

    /// Leaves out the controllers of the list that are in it under another name before, each with
    /// that name.
    pub fn set_duplicates(&self, duplicates: &BTreeMap<String, String>) {
        let requests = self.cordon_requests.lock();
        let before = self.known();
        let mut known = Known::clone(&before).without(duplicates);
        if known == *before {
            return;
        }
        for (second, first) in &known.duplicates {
            if !before.duplicates.contains_key(second) {
                tracing::warn!(
                    first,
                    second,
                    "two entries of the list of controllers are one V-IPU controller, and only the first one counts; \
                     remove the second one from {KEY}"
                );
            }
        }
        known.cordons = cordon::states(&requests, &known.entries);
        self.known.send_replace(Arc::new(known));
    }

    /// Applies the current requests of admins in VIPUControllers.
    pub fn set_cordons(&self, requests: CordonRequests) {
        let mut current = self.cordon_requests.lock();
        *current = requests;
        let before = self.known();
        let cordons = cordon::states(&current, &before.entries);
        if cordons == before.cordons {
            return;
        }
        tracing::info!(?cordons, "the cordoned and drained controllers changed");
        self.known.send_replace(Arc::new(Known {
            cordons,
            ..Known::clone(&before)
        }));
    }
}

impl Known {
    /// The same list without these second names, as far as both names are in it.
    fn without(mut self, duplicates: &BTreeMap<String, String>) -> Self {
        let position = |name: &String| self.listed.iter().position(|entry| entry.name == *name);
        let is_second = |(second, first): &(&String, &String)| {
            let counts = !duplicates.contains_key(*first);
            let positions = position(first).zip(position(second));
            counts && positions.is_some_and(|(earlier, later)| earlier < later)
        };
        let current = duplicates.iter().filter(is_second);
        let current = current.map(|(second, first)| (second.clone(), first.clone()));
        let current: BTreeMap<String, String> = current.collect();
        let is_first = |entry: &&ControllerRef| !current.contains_key(&entry.name);
        self.entries = self.listed.iter().filter(is_first).cloned().collect();
        // An admin renames no controller that is still in the list.
        let renamed = &mut self.departed.renamed;
        renamed.retain(|name, _| !self.duplicates.contains_key(name));
        for (second, first) in &current {
            let mut entries = self.entries.iter();
            if let Some(entry) = entries.find(|entry| entry.name == *first) {
                renamed.insert(second.clone(), entry.clone());
            }
        }
        self.duplicates = current;
        self
    }
}

/// The controllers of a ConfigMap, with the previous cordons. Without a list, the last valid one
/// stays: the accidental deletion of a ConfigMap must not remove all controllers.
fn read(before: &Known, object: Option<&ConfigMap>) -> Known {
    let value = |key| {
        let values = object.map(|object| object.data.as_ref());
        values.map(|values| {
            values
                .and_then(|values| values.get(key))
                .map(String::as_str)
        })
    };
    match value(KEY) {
        Some(Some(text)) => {
            let mut list = controllers::parse(text);
            let (gone, renamed) = (value(departed::GONE), value(departed::RENAMED));
            let (departed, problems) =
                departed::parse(gone.flatten(), renamed.flatten(), &list.entries);
            list.problems.extend(problems);
            let former = cordon::former_entries(|key| value(key).flatten());
            list.problems.extend(former);
            Known {
                entries: list.entries.clone(),
                listed: list.entries,
                duplicates: BTreeMap::new(),
                scopes: list.scopes,
                departed,
                problems: list.problems,
                source: Source::Current,
                cordons: before.cordons.clone(),
            }
        }
        Some(None) => Known {
            source: Source::KeyGone,
            ..before.clone()
        },
        None => Known {
            source: Source::ConfigMapGone,
            ..before.clone()
        },
    }
}

/// Logs the new list for the admin.
fn report(known: &Known) {
    let names: Vec<_> = known.entries.iter().map(|entry| &*entry.name).collect();
    match known.source {
        Source::NotRead => {}
        Source::Current if names.is_empty() => tracing::warn!(
            "the list of controllers under {KEY} names none; every job waits until there is one"
        ),
        Source::Current => tracing::info!(
            controllers = ?names, scopes = ?known.scopes, cordons = ?known.cordons,
            gone = ?known.departed.gone, renamed = ?known.departed.renamed.keys(),
            "the list of controllers was read"
        ),
        Source::ConfigMapGone => tracing::warn!(
            controllers = ?names,
            "the ConfigMap with the list of controllers is gone; the last list stays in use"
        ),
        Source::KeyGone => tracing::warn!(
            controllers = ?names,
            "the ConfigMap with the list of controllers has no key {KEY}; the last list stays in use"
        ),
    }
    for problem in &known.problems {
        tracing::warn!(%problem, "a bad entry in the list of controllers was left out");
    }
}

#[cfg(test)]
mod tests;
