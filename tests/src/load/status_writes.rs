//! The cost of a status update of a job for the API server, for different requests and definitions. One run alternates
//! between them.

mod sample;

use std::time::Duration;

use cluster::control_plane::ControlPlane;
use futures::{StreamExt, TryStreamExt, stream};
use http::header::{ACCEPT, HeaderValue};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Client;
use kube::api::{Api, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use super::bare::define;
use super::consumption::Consumption;
use super::submit::jobs;
use super::{LoadError, api, as_figure};
use sample::{status, training};

/// Jobs of each way, which are written at the same time.
const JOBS: usize = 4;

/// Rounds of each way.
const ROUNDS: usize = 10;

/// The group of the definition as it is.
const AS_IT_IS: &str = "graphcore.ai";

/// The group of a definition without the fields of a Pod template.
const NO_TEMPLATE: &str = "no-template.example.org";

/// The group of a definition with the fields of a Pod template down to those of its containers.
const SHALLOW: &str = "shallow-template.example.org";

/// The group of a definition without rules in CEL.
const NO_RULES: &str = "no-rules.example.org";

/// The header that requests only the metadata of an object.
const METADATA_ALONE: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

/// A way to write a status.
struct Way {
    what: &'static str,
    group: &'static str,
    verb: Verb,
    /// Whether the object has no managed fields.
    is_unmanaged: bool,
    /// Whether the status has no conditions.
    is_small: bool,
}

#[derive(Clone, Copy)]
enum Verb {
    Put,
    /// Without the spec, which the API server ignores there.
    PutStatusAlone,
    /// The same, with only metadata in the reply.
    PutForMetadata,
    MergePatch,
    JsonPatch,
    Apply,
}

/// All ways; the first one is what the controller does.
const WAYS: &[Way] = &[
    way("PUT of the whole job", AS_IT_IS, Verb::Put),
    way("PUT of the status alone", AS_IT_IS, Verb::PutStatusAlone),
    way(
        "PUT of the status alone, answered by metadata",
        AS_IT_IS,
        Verb::PutForMetadata,
    ),
    way(
        "PUT, nothing known of the Pod template",
        NO_TEMPLATE,
        Verb::Put,
    ),
    way(
        "PUT, the Pod template known to its containers",
        SHALLOW,
        Verb::Put,
    ),
    way("PUT, no rules in CEL", NO_RULES, Verb::Put),
    Way {
        is_unmanaged: true,
        ..way("PUT, no managed fields", AS_IT_IS, Verb::Put)
    },
    Way {
        is_small: true,
        ..way("PUT, a status without conditions", AS_IT_IS, Verb::Put)
    },
    way("merge patch", AS_IT_IS, Verb::MergePatch),
    way("JSON patch", AS_IT_IS, Verb::JsonPatch),
    way("server-side apply", AS_IT_IS, Verb::Apply),
];

const fn way(what: &'static str, group: &'static str, verb: Verb) -> Way {
    Way {
        what,
        group,
        verb,
        is_unmanaged: false,
        is_small: false,
    }
}

/// The cost of one way of writing a status.
#[derive(Clone, Debug)]
pub struct StatusWrites {
    /// The way.
    pub what: &'static str,
    /// Number of updates.
    pub count: usize,
    /// Time on a processor that kube-apiserver took for them.
    pub api_server: Duration,
}

impl StatusWrites {
    /// Time on a processor for each, in milliseconds.
    pub fn ms_of_each(&self) -> f64 {
        self.api_server.as_secs_f64() * 1000.0 / as_figure(self.count as u64)
    }
}

/// Writes the status of a job `count` times in each way.
pub async fn status_writes(count: usize) -> Result<Vec<StatusWrites>, LoadError> {
    let plane = ControlPlane::start().await?;
    let client = plane.client().await?;
    for definition in definitions() {
        define(&client, &definition).await?;
    }
    let mut written = Vec::new();
    for (number, way) in WAYS.iter().enumerate() {
        let objects = stream::iter(0..JOBS).then(|job| made(&client, way, number, job));
        let objects: Vec<DynamicObject> = objects.try_collect().await?;
        let none = StatusWrites {
            what: way.what,
            count: 0,
            api_server: Duration::ZERO,
        };
        written.push((way, objects, none));
    }
    let each = count.div_ceil(ROUNDS * JOBS);
    for turn in 0..ROUNDS {
        // No way always comes after the same one.
        written.rotate_left(turn);
        for (way, objects, sum) in &mut written {
            let way: &Way = way;
            let used = Consumption::of_api_server(&plane)?;
            stream::iter(objects)
                .map(Ok)
                .try_for_each_concurrent(JOBS, |object| {
                    several(&client, way, object, turn * each..(turn + 1) * each)
                })
                .await?;
            sum.count += each * JOBS;
            sum.api_server += Consumption::of_api_server(&plane)?.saturating_sub(used);
        }
    }
    let place = |what: &str| WAYS.iter().position(|way| way.what == what);
    let mut sums: Vec<_> = written.into_iter().map(|(_, _, sum)| sum).collect();
    sums.sort_by_key(|sum| place(sum.what));
    Ok(sums)
}

/// Every definition of the experiment. Only the first is for users. The others show the cost of a part.
fn definitions() -> [CustomResourceDefinition; 4] {
    let template = ["spec", "workers", "template"];
    [
        ipu_api::crd::ipujob(),
        variant(NO_TEMPLATE, &template, |template| *template = opaque()),
        variant(SHALLOW, &template, |template| forget_below(template, 5)),
        variant(NO_RULES, &["spec"], |spec| {
            spec.x_kubernetes_validations = None;
        }),
    ]
}

/// The definition in another group, changed in one place.
fn variant(
    group: &str,
    path: &[&str],
    change: impl FnOnce(&mut JSONSchemaProps),
) -> CustomResourceDefinition {
    let mut definition = ipu_api::crd::ipujob();
    group.clone_into(&mut definition.spec.group);
    definition.metadata.name = Some(format!("{}.{group}", definition.spec.names.plural));
    let schema = definition.spec.versions[0].schema.as_mut();
    let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_mut());
    let part = path.iter().try_fold(schema, |schema, name| {
        Some(schema?.properties.as_mut()?.get_mut(*name))
    });
    if let Some(Some(part)) = part {
        change(part);
    }
    definition
}

/// A schema for any object.
fn opaque() -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("object".to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    }
}

/// Removes the schemas of objects below this level.
fn forget_below(schema: &mut JSONSchemaProps, levels: usize) {
    if levels == 0 && schema.type_.as_deref() == Some("object") {
        *schema = opaque();
        return;
    }
    let levels = levels.saturating_sub(1);
    for child in schema.properties.iter_mut().flatten() {
        forget_below(child.1, levels);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(child)) = schema.items.as_mut() {
        forget_below(child, levels);
    }
}

async fn made(
    client: &Client,
    way: &Way,
    number: usize,
    job: usize,
) -> Result<DynamicObject, LoadError> {
    let mut object = training(way.group, &format!("way-{number}-{job}"));
    let api_of = jobs(client, way.group, "v1alpha1", "IPUJob");
    let parameters = PostParams::default();
    let made = api_of.create(&parameters, &object).await;
    object = made.map_err(api("make a job"))?;
    if way.is_unmanaged {
        // An empty entry makes the API server remove the managers, and record no others.
        object.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
        let name = object.metadata.name.clone().unwrap_or_default();
        let replaced = api_of.replace(&name, &parameters, &object).await;
        object = replaced.map_err(api("forget the managers of a job"))?;
    }
    object.metadata.managed_fields = None;
    Ok(object)
}

async fn several(
    client: &Client,
    way: &Way,
    object: &mut DynamicObject,
    numbers: std::ops::Range<usize>,
) -> Result<(), LoadError> {
    let api_of = jobs(client, way.group, "v1alpha1", "IPUJob");
    for number in numbers {
        let written = write(&api_of, way, object, number).await;
        object.metadata.resource_version = written
            .map_err(api("write a status"))?
            .metadata
            .resource_version;
    }
    Ok(())
}

async fn write(
    api_of: &Api<DynamicObject>,
    way: &Way,
    object: &DynamicObject,
    number: usize,
) -> Result<DynamicObject, kube::Error> {
    let status = status(number, way.is_small);
    let version = object.metadata.resource_version.clone();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let parameters = PatchParams::default();
    match way.verb {
        Verb::Put => {
            let mut object = object.clone();
            object.data["status"] = status;
            let parameters = PostParams::default();
            api_of.replace_status(name, &parameters, &object).await
        }
        Verb::PutStatusAlone => {
            let object = alone(object, &status);
            let parameters = PostParams::default();
            api_of.replace_status(name, &parameters, &object).await
        }
        Verb::PutForMetadata => put_for_metadata(api_of, name, &alone(object, &status)).await,
        Verb::MergePatch => {
            let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
            let patch = Patch::Merge(patch);
            api_of.patch_status(name, &parameters, &patch).await
        }
        Verb::JsonPatch => {
            let patch = json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/status", "value": status},
            ]);
            let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
            let patch: Patch<Value> = Patch::Json(patch);
            api_of.patch_status(name, &parameters, &patch).await
        }
        Verb::Apply => {
            let patch = json!({
                "apiVersion": format!("{}/v1alpha1", way.group),
                "kind": "IPUJob",
                "metadata": {"name": name, "resourceVersion": version},
                "status": status,
            });
            let parameters = PatchParams::apply("status").force();
            let patch = Patch::Apply(patch);
            api_of.patch_status(name, &parameters, &patch).await
        }
    }
}

/// Replaces the status, and requests only metadata in the reply.
async fn put_for_metadata(
    api_of: &Api<DynamicObject>,
    name: &str,
    object: &DynamicObject,
) -> Result<DynamicObject, kube::Error> {
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(api_of.resource_url()).replace_subresource(
        "status",
        name,
        &PostParams::default(),
        body,
    );
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    let accept = HeaderValue::from_static(METADATA_ALONE);
    request.headers_mut().insert(ACCEPT, accept);
    api_of.clone().into_client().request(request).await
}

/// The object without all that an update of its status does not read.
fn alone(object: &DynamicObject, status: &Value) -> DynamicObject {
    DynamicObject {
        types: object.types.clone(),
        metadata: ObjectMeta {
            name: object.metadata.name.clone(),
            namespace: object.metadata.namespace.clone(),
            uid: object.metadata.uid.clone(),
            resource_version: object.metadata.resource_version.clone(),
            ..ObjectMeta::default()
        },
        data: json!({"status": status}),
    }
}
