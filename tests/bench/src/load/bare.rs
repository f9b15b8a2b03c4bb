//! Sends the writes of the operator in a loop without decisions, which gives the maximum that the
//! API server allows.

use std::time::Instant;

use cluster::api_writes::Writes;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::consumption::Consumption;
use super::fake_node::FakeNode;
use super::product::FIRST;
use super::submit::{jobs, once_served};
use super::{Load, LoadError, PATIENCE, api, plane};

/// Numbers of partitions that are written at the same time. The best result counts.
pub(super) const AT_ONCE: [usize; 4] = [8, 16, 32, 64];

/// Number of jobs that are written at the same time.
const JOBS_AT_ONCE: usize = 32;

/// Writes the objects of `count` jobs, each made like `objects`, and as many updates and dry runs
/// of each as the operator made in `like`, but no events.
pub async fn bare_loop(
    count: usize,
    objects: &[Value],
    like: &Load,
    fsync: bool,
) -> Result<Load, LoadError> {
    let plane = plane(fsync).await?;
    let client = plane.client().await?;
    for definition in [ipu_api::crd::ipujob(), ipu_api::crd::ipupartition()] {
        define(&client, &definition).await?;
    }
    let node = FakeNode::start(client.clone());
    write_one(&client, objects, like, "bare-first".to_owned()).await?;
    node.once_running(3, PATIENCE).await?;
    let (begun, used) = (Instant::now(), Consumption::of_api_server(&plane)?);
    let before = Writes::so_far(&client).await.map_err(Box::new)?;
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(JOBS_AT_ONCE, |number| {
            write_one(&client, objects, like, format!("bare-{number}"))
        })
        .await?;
    node.once_running(3 * (count + 1), PATIENCE).await?;
    let took = begun.elapsed();
    let others = ["POST ipujobs", "PATCH pods/status"];
    let after = Writes::so_far(&client).await.map_err(Box::new)?;
    Ok(Load {
        count,
        took,
        writes: after.since(&before, &others),
        api_server: Consumption::of_api_server(&plane)?.saturating_sub(used),
    })
}

/// Creates the objects of one job or one partition under a new name, then updates them as the
/// operator does.
pub(super) async fn write_one(
    client: &Client,
    objects: &[Value],
    like: &Load,
    name: String,
) -> Result<(), LoadError> {
    let mut made = Vec::new();
    for object in objects {
        let object: DynamicObject = renamed(object, &name)?;
        let written = api_of(client, &object)?
            .create(&PostParams::default(), &object)
            .await
            .map_err(api("make an object"))?;
        made.push((object.data["status"].clone(), written));
    }
    for (what, count) in &like.writes {
        let Some((verb, resource)) = what.split_once(' ') else {
            continue;
        };
        // Some writes belong to no job: the operator updates the VIPUControllers at times.
        let each = (count + like.count as u64 / 2) / like.count as u64;
        if verb == "TRY" {
            try_pods(client, objects, (&name, each)).await?;
            continue;
        }
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        if each == 0 || part.is_empty() && ["POST", "APPLY"].contains(&verb) {
            continue;
        }
        let mut of_kind = made.iter_mut();
        let Some((status, object)) = of_kind.find(|(_, object)| is_of(object, resource)) else {
            return Err(LoadError::Missing(format!(
                "none of the objects is one of {resource}"
            )));
        };
        for number in 0..each {
            *object = match (verb, part) {
                ("PUT", "status") => replace_status(client, object, status, number).await?,
                _ => annotate(client, object, number).await?,
            };
        }
    }
    Ok(())
}

/// Sends dry runs of Pods, as the operator does before it requests IPUs.
async fn try_pods(
    client: &Client,
    objects: &[Value],
    (name, each): (&str, u64),
) -> Result<(), LoadError> {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pod = objects.iter().find(|object| object["kind"] == "Pod");
    for number in 0..each {
        let missing = || LoadError::Missing("a job has no Pod to try".to_owned());
        let pod = renamed(pod.ok_or_else(missing)?, &format!("{name}-try-{number}"))?;
        let tried = api_of(client, &pod)?.create(&dry_run, &pod).await;
        tried.map_err(api("try a Pod"))?;
    }
    Ok(())
}

/// Writes a status again, with a change, because the API server does not write an unchanged object.
async fn replace_status(
    client: &Client,
    object: &DynamicObject,
    status: &Value,
    number: u64,
) -> Result<DynamicObject, LoadError> {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    object.data["status"] = status.clone();
    for field in ["lastMessage", "message"] {
        object.data["status"][field] = json!(format!("update {number}"));
    }
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let api = api_of(client, &object)?;
    let written = api
        .replace_status(name, &PostParams::default(), &object)
        .await;
    written.map_err(self::api("write a status"))
}

async fn annotate(
    client: &Client,
    object: &DynamicObject,
    number: u64,
) -> Result<DynamicObject, LoadError> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let annotation = json!({"metadata": {"annotations": {"bare": number.to_string()}}});
    let patched = api_of(client, object)?
        .patch(name, &PatchParams::default(), &Patch::Merge(annotation))
        .await;
    patched.map_err(api("update an object"))
}

/// The requested object, with its job's name replaced by that of another job.
fn renamed(object: &Value, name: &str) -> Result<DynamicObject, LoadError> {
    let text = object.to_string().replace(FIRST, name);
    let not_json = |error: serde_json::Error| LoadError::Missing(error.to_string());
    let mut object: DynamicObject = serde_json::from_str(&text).map_err(not_json)?;
    let metadata = &mut object.metadata;
    metadata.uid = None;
    metadata.resource_version = None;
    metadata.creation_timestamp = None;
    metadata.managed_fields = None;
    metadata.generation = None;
    Ok(object)
}

fn is_of(object: &DynamicObject, resource: &str) -> bool {
    let kind = object.types.as_ref().map(|types| types.kind.to_lowercase());
    kind.is_some_and(|kind| format!("{kind}s") == resource)
}

fn api_of(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>, LoadError> {
    let types = object.types.as_ref();
    let types = types.ok_or_else(|| LoadError::Missing("an object has no kind".to_owned()))?;
    let (group, version) = types
        .api_version
        .rsplit_once('/')
        .unwrap_or(("", &types.api_version));
    if object.metadata.namespace.is_some() {
        return Ok(jobs(client, group, version, &types.kind));
    }
    let kind = GroupVersionKind::gvk(group, version, &types.kind);
    Ok(Api::all_with(client.clone(), &ApiResource::from_gvk(&kind)))
}

/// Makes a CRD, and waits until its kind is served.
pub(super) async fn define(
    client: &Client,
    definition: &CustomResourceDefinition,
) -> Result<(), LoadError> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let made = definitions.create(&PostParams::default(), definition).await;
    made.map_err(api("make a CRD"))?;
    let names = &definition.spec.names;
    let version = &definition.spec.versions[0].name;
    let kind = GroupVersionKind::gvk(&definition.spec.group, version, &names.kind);
    once_served(&Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&kind),
    ))
    .await
}
