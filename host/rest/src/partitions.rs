//! `/partitions`: IPUPartitions for users with a token and the permission in RBAC; and
//! `/controllers` with the owners of partitions for the same users.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRef, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use ipu_api::dns1123;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::{IPUPartition, PartitionOwner};
use ipu_api::labels::REQUESTED_BY_ANNOTATION;
use ipu_partitions::store::Brief;
use ipu_runtime::api_client::API_TIMEOUT;
use ipu_runtime::requests;
use ipu_runtime::scope::{Conflicts, Scope};
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::authorizer::{Authorizer, Permission, Verb};
use super::caller::Caller;
use super::controllers::{self, Controller, Holdings};
use super::create_request::{self, CreateRequest};
use super::operation::{self, Operation, Parameter, schema_of};
use super::page::{self, List, ListQuery};
use super::problem::{Kind, Problem};
use super::representation::{Released, released, represent};
use super::sources::Sources;
use super::{api_error, limits};

/// Longest user name in an annotation, in characters.
const USER_MAX: usize = 253;

/// The state of port 8443.
#[derive(Clone)]
pub struct SecureState {
    /// Sources of the reads.
    pub sources: Sources,
    /// Authorizes each request.
    pub authorizer: Arc<Authorizer>,
    /// The namespaces of owners that this release serves.
    pub scope: Scope,
    /// Conflicts that make this release inactive.
    pub conflicts: Conflicts,
    /// The client of the proxy, whose rights authorized requests use.
    pub client: Client,
}

impl FromRef<SecureState> for Sources {
    fn from_ref(state: &SecureState) -> Self {
        state.sources.clone()
    }
}

/// The operations on IPUPartitions.
pub(super) fn operations() -> Vec<Operation<SecureState>> {
    vec![
        Operation::get::<List>(
            "/partitions",
            "listPartitions",
            "The IPUPartitions, by name.",
            get(list),
        )
        .guarded()
        .with(|what| {
            what.parameters = page::parameters();
            what.problems.push(Kind::Malformed);
        }),
        Operation::get::<IPUPartition>(
            "/partitions/{name}",
            "getPartition",
            "One IPUPartition.",
            get(read),
        )
        .guarded()
        .with(|what| {
            what.parameters = vec![NAME];
            what.problems.extend([Kind::Malformed, Kind::Absent]);
        }),
        Operation::get::<IPUPartition>(
            "/partitions",
            "createPartition",
            "The created IPUPartition. The header Location contains its path.",
            post(create),
        )
        .guarded()
        .with(|what| {
            what.method = "post";
            what.details = "Requests a partition by creating an IPUPartition. Its status shows \
                the progress: it may wait for free capacity.";
            what.body = Some(operation::Body {
                schema: schema_of::<CreateRequest>,
                max: limits::CREATE_MAX,
            });
            what.answer.status = 201;
            what.problems
                .extend([Kind::Malformed, Kind::Slow, Kind::Conflict]);
            what.problems
                .extend([Kind::TooLarge, Kind::WrongType, Kind::Refused, Kind::Absent]);
        }),
        Operation::get::<Released>(
            "/partitions/{name}",
            "deletePartition",
            "The IPUPartition. It is deleted when no V-IPU controller has a partition of it any more.",
            delete(release),
        )
        .guarded()
        .with(|what| {
            what.method = "delete";
            what.parameters = vec![NAME];
            what.answer.status = 202;
            what.problems
                .extend([Kind::Malformed, Kind::Absent, Kind::Conflict]);
        }),
    ]
}

/// The read of the V-IPU controllers for users who may list IPUPartitions.
pub(super) fn controllers() -> Operation<SecureState> {
    Operation::get::<Vec<Controller>>(
        "/controllers",
        "controllers",
        "The partitions and IPUs of each V-IPU controller, with the owners.",
        get(all_controllers),
    )
    .guarded()
}

/// The name in the path.
const NAME: Parameter = Parameter {
    name: "name",
    place: "path",
    description: "Name of the IPUPartition.",
    schema: schema_of::<String>,
};

async fn list(
    State(state): State<SecureState>,
    caller: Caller,
    uri: Uri,
    asked: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<List>, Problem> {
    let permission = Permission::Partitions(Verb::List, None);
    state.authorizer.authorize(&caller, permission).await?;
    let query = uri.query().unwrap_or_default();
    let Query(list_query) = asked.map_err(|error| {
        let rule = format!("{}, but it is not: {}", page::RULE, error.body_text());
        Problem::of_field(Kind::Malformed, "query", query, &rule)
    })?;
    let limit = list_query.limit()?;
    if !state.sources.is_ready() {
        let detail = "the IPUPartitions are not read yet; try again";
        return Err(Problem::new(Kind::Unavailable, detail).with_header("retry-after", "1"));
    }
    let ListQuery {
        namespace, after, ..
    } = list_query;
    let is_of =
        |one: &Brief| namespace.is_none() || one.namespace.as_deref() == namespace.as_deref();
    let partitions = &state.sources.partitions;
    let found = partitions.read(|cache| cache.page(after.as_deref(), limit + 1, is_of));
    Ok(Json(page::list(found, limit)))
}

async fn all_controllers(
    State(state): State<SecureState>,
    caller: Caller,
) -> Result<Json<Vec<Controller>>, Problem> {
    let permission = Permission::Partitions(Verb::List, None);
    state.authorizer.authorize(&caller, permission).await?;
    let states = state.sources.pool.states().await;
    let mut held = Holdings::default();
    let partitions = &state.sources.partitions;
    partitions
        .each_readable(|partition| held.add(partition))
        .await;
    Ok(Json(controllers::controllers(states, held)))
}

async fn read(
    State(state): State<SecureState>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let name = name(path)?;
    let permission = Permission::Partitions(Verb::Get, Some(&name));
    state.authorizer.authorize(&caller, permission).await?;
    let found = state.get(&name).await?;
    Ok(Json(represent(found)))
}

async fn create(
    State(state): State<SecureState>,
    caller: Caller,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let permission = Permission::Partitions(Verb::Create, None);
    let user = state.authorizer.authorize(&caller, permission).await?;
    is_json(&headers)?;
    let mut requested = create_request::object(create_request::read(&body)?);
    // The audit log shows only the account of the proxy.
    let requested_by = user.chars().take(USER_MAX).collect();
    let annotations = requested.annotations_mut();
    annotations.insert(REQUESTED_BY_ANNOTATION.to_owned(), requested_by);
    state.serves(&requested.spec.owner)?;
    let name = requested.name_any();
    let made = state.create(requested).await?;
    tracing::info!(partition = name, user, "made an IPUPartition over REST");
    let location = [(header::LOCATION, format!("/partitions/{name}"))];
    Ok((StatusCode::CREATED, location, Json(represent(made))).into_response())
}

async fn release(
    State(state): State<SecureState>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let name = name(path)?;
    let permission = Permission::Partitions(Verb::Delete, Some(&name));
    let user = state.authorizer.authorize(&caller, permission).await?;
    let found = state.get(&name).await?;
    let leaving = state.delete(&name, found).await?;
    tracing::info!(partition = name, user, "deleted an IPUPartition over REST");
    let owner = serde_json::from_value(leaving.data["spec"]["owner"].clone()).ok();
    let is_wanted = match &owner {
        Some(owner) => state.is_living_job(owner).await,
        None => false,
    };
    let released = released(leaving, owner.filter(|_| is_wanted).as_ref());
    Ok((StatusCode::ACCEPTED, Json(released)).into_response())
}

impl SecureState {
    /// Refuses owners in other namespaces, and all owners while the release is inactive.
    fn serves(&self, owner: &PartitionOwner) -> Result<(), Problem> {
        if let Some(conflict) = self.conflicts.current().first() {
            let detail = format!("this operator is inactive: {}", conflict.message());
            return Err(Problem::new(Kind::Unavailable, detail));
        }
        if self.scope.contains(&owner.namespace) {
            return Ok(());
        }
        let rule = format!("one that this operator serves: {}", self.scope);
        let (kind, field) = (Kind::Malformed, "owner.namespace");
        Err(Problem::of_field(kind, field, &owner.namespace, &rule))
    }

    async fn get(&self, name: &str) -> Result<DynamicObject, Problem> {
        let action = format!("read the IPUPartition {name}");
        let api = self.partitions();
        answer(&action, api.get(name)).await
    }

    async fn create(&self, requested: IPUPartition) -> Result<DynamicObject, Problem> {
        let action = format!("create the IPUPartition {}", requested.name_any());
        let requested = serde_json::to_value(requested).and_then(serde_json::from_value);
        let requested: DynamicObject =
            requested.expect("an IPUPartition is an object of Kubernetes");
        let api = self.partitions();
        answer(&action, api.create(&requests::post(), &requested)).await
    }

    /// Deletes the object that was `found`, but not another one that has got its name meanwhile.
    async fn delete(&self, name: &str, found: DynamicObject) -> Result<DynamicObject, Problem> {
        let action = format!("delete the IPUPartition {name}");
        let exactly = requests::delete(found.uid(), None);
        let api = self.partitions();
        let deleted = answer(&action, api.delete(name, &exactly)).await?;
        // Without a finalizer it is gone already.
        Ok(deleted.left().unwrap_or(found))
    }

    /// Whether the owner is a living IPUJob, which requests the partition again. If that is
    /// unknown, only a warning is missing.
    async fn is_living_job(&self, owner: &PartitionOwner) -> bool {
        if !owner.is_job() || !dns1123::can_exist(owner) {
            return false;
        }
        let jobs = Api::<IPUJob>::namespaced(self.client.clone(), &owner.namespace);
        let found = tokio::time::timeout(API_TIMEOUT, jobs.get_metadata_opt(&owner.name)).await;
        found.is_ok_and(|found| {
            found.is_ok_and(|job| {
                job.is_some_and(|job| {
                    job.metadata.uid.as_ref() == Some(&owner.uid)
                        && job.metadata.deletion_timestamp.is_none()
                })
            })
        })
    }

    /// IPUPartitions, also unreadable ones.
    fn partitions(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<IPUPartition>(&());
        Api::all_with(self.client.clone(), &kind)
    }
}

/// The answer of the API server within the timeout.
async fn answer<T>(
    action: &str,
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Problem> {
    match tokio::time::timeout(API_TIMEOUT, asked).await {
        Ok(answer) => answer.map_err(|error| api_error::problem(action, &error)),
        Err(_) => Err(api_error::timeout(action)),
    }
}

/// The name in the path. It becomes part of a path at the API server, so it is validated first.
fn name(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let malformed = |fault| Problem::of_request(Kind::Malformed, vec![fault]);
    let Path(name) =
        path.map_err(|error| malformed(create_request::unreadable_name(&error.body_text())))?;
    match create_request::wrong_name(&name) {
        None => Ok(name),
        Some(fault) => Err(malformed(fault)),
    }
}

fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .map(axum::http::HeaderValue::as_bytes);
    let content_type = String::from_utf8_lossy(content_type.unwrap_or_default());
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::of_field(
        Kind::WrongType,
        "content-type",
        essence,
        "application/json",
    ))
}
