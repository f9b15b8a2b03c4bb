//! Reads whole lists from the API server, page by page: the attempts of IPUPartitions, and the
//! existing owners.

use std::collections::HashSet;

use futures::FutureExt;
use futures::future::BoxFuture;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_ledger::sweep::orphans;
use ipu_runtime::api_client;
use ipu_runtime::trimmed::Trimmed;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, ObjectList};
use kube::core::{ApiResource, PartialObjectMeta};

use super::SweepError;

/// Page size of lists. A page of IPUPartitions takes some ten KiB of memory for each.
const PAGE: u32 = 200;

/// Maximum number of restarts of a list after its token has expired. The API server serves a
/// snapshot for some five minutes, and a list of ten thousand objects takes seconds.
const BEGINNINGS: usize = 3;

/// The metadata of an object. The list of a kind fails only if the API server itself has written
/// what cannot be read: then none of them counts as gone.
pub(super) type Metadata = Trimmed<PartialObjectMeta<DynamicObject>>;

/// The attempts of all IPUPartitions.
#[derive(Default)]
pub(super) struct Holdings {
    pub(super) objects: usize,
    /// Ids of their attempts, and every text in objects that cannot be parsed: an id that equals
    /// such a text is not removed. There are thousands, so that only their digests are stored.
    pub(super) ids: HashSet<Uid>,
    /// Those whose owner may be gone.
    pub(super) suspects: Vec<IPUPartition>,
}

/// The attempts of the IPUPartitions at one moment, with the IPUPartitions for which `is_suspect`
/// holds.
pub(super) async fn holdings(
    client: &Client,
    is_suspect: impl Fn(&IPUPartition) -> bool,
) -> Result<Holdings, SweepError> {
    let kind = ApiResource::erase::<IPUPartition>(&());
    let api = Api::<Trimmed<DynamicObject>>::all_with(client.clone(), &kind);
    let take = |holdings: &mut Holdings, Trimmed(object): Trimmed<DynamicObject>| match object
        .clone()
        .try_parse::<IPUPartition>()
    {
        Ok(partition) => {
            holdings.objects += 1;
            let ids = orphans::held([&partition]);
            holdings.ids.extend(ids.iter().map(|id| Uid::of(id)));
            if is_suspect(&partition) {
                holdings.suspects.push(partition);
            }
        }
        Err(_) => collect_texts(&object.data, &mut holdings.ids),
    };
    let api = &api;
    let list = |params: ListParams| async move { api.list(&params).await }.boxed();
    let listed = each(list, take).await;
    listed.map_err(|source| SweepError::List("the IPUPartitions", source))
}

/// UIDs of all objects of a kind, with these labels. One list for all: a request for the owner of
/// each IPUPartition would be thousands of requests, one after the other.
pub(super) async fn uids(
    api: &Api<Metadata>,
    labels: Option<&str>,
) -> Result<HashSet<Uid>, kube::Error> {
    let list = |params: ListParams| {
        let label_selector = labels.map(str::to_owned);
        let params = ListParams {
            label_selector,
            ..params
        };
        async move { api.list(&params).await }.boxed()
    };
    let take = |uids: &mut HashSet<Uid>, Trimmed(one): Metadata| {
        uids.extend(one.metadata.uid.as_deref().map(Uid::of));
    };
    each(list, take).await
}

/// Handles every object of a list, page by page. Where the continue token has expired, the whole
/// list is read again: the pages before are of another moment.
async fn each<'a, K: Clone, T: Default>(
    list: impl Fn(ListParams) -> BoxFuture<'a, Result<ObjectList<K>, kube::Error>>,
    mut take: impl FnMut(&mut T, K),
) -> Result<T, kube::Error> {
    let mut beginnings = 1;
    let (mut taken, mut params) = (T::default(), ListParams::default().limit(PAGE));
    loop {
        let page = match api_client::with_timeout(list(params.clone())).await {
            Err(kube::Error::Api(status)) if status.code == 410 && beginnings < BEGINNINGS => {
                beginnings += 1;
                (taken, params.continue_token) = (T::default(), None);
                continue;
            }
            page => page?,
        };
        for object in page.items {
            take(&mut taken, object);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(taken),
        }
    }
}

fn collect_texts(value: &serde_json::Value, texts: &mut HashSet<Uid>) {
    match value {
        serde_json::Value::String(text) => {
            texts.insert(Uid::of(text));
        }
        serde_json::Value::Array(items) => {
            for item in items {
                collect_texts(item, texts);
            }
        }
        serde_json::Value::Object(fields) => {
            for field in fields.values() {
                collect_texts(field, texts);
            }
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}
