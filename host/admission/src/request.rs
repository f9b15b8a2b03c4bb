//! Pure: parses an AdmissionReview.
//!
//! It does not use the types of kube, which parse the metadata into fixed fields: a patch must
//! apply to the exact JSON of the API server.

use ipu_api::guest::admission::{Admission, GROUPS_MAX, Operation, User};
use ipu_api::guest::namespace::NamespaceContext;
use ipu_guest_host::limits::OBJECT_TREE;
use ipu_policies::match_input::ReviewedResource;
use ipu_policies::match_samples;
use ipu_runtime::bounded_json::{self, BoundedJsonError, Budget, Measured};
use ipu_text::sanitize;
use serde::Deserialize;
use serde_json::Value;

/// Memory limit of a parsed review.
pub const TREE: Budget = Budget::of_memory(OBJECT_TREE);

/// Longest `uid` of a review, in bytes. An API server's has 36.
const UID_MAX: usize = 128;

/// Longest name of an object in Kubernetes, in bytes. A longer one is cut, because the error of the
/// API server helps the user more than a refused call.
const NAME_MAX: usize = 253;

/// The part of an object for which there are defaults. A change of labels must not add any.
pub const DEFAULTED: &[&str] = &["/spec"];

/// The parts of an object that rules can be about, as against finalizers, owners and the status.
pub const RULED: &[&str] = &["/spec", "/metadata/labels", "/metadata/annotations"];

/// Versions of AdmissionReview. The answer has the version of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`.
    V1Beta1,
}

impl ReviewVersion {
    /// Returns the `apiVersion`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// Kinds of objects that the webhooks review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// An IPUJob.
    IPUJob,
    /// The number of instances of an IPUJob, which `kubectl scale` and autoscalers change.
    Scale,
    /// A Pod that requests IPUs itself.
    Pod,
}

impl Reviewed {
    /// API group of the kind.
    pub const fn group(self) -> &'static str {
        self.in_conditions().group
    }

    /// Name of the kind.
    pub const fn kind(self) -> &'static str {
        self.in_conditions().kind
    }

    /// The resource in the rules of a webhook configuration.
    pub const fn resource(self) -> &'static str {
        self.in_conditions().resource
    }

    /// The kind and the resource in the match conditions of policies.
    pub const fn in_conditions(self) -> ReviewedResource {
        match self {
            Self::IPUJob => match_samples::IPUJOB,
            Self::Pod => match_samples::POD,
            Self::Scale => match_samples::SCALE,
        }
    }
}

/// An admission request for one object.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionRequest {
    /// Version of the request and of the answer.
    pub version: ReviewVersion,
    /// Kind of the reviewed object.
    pub reviewed: Reviewed,
    /// UID of the request; the answer has it too.
    pub uid: String,
    /// The operation. `None` for one that policies do not decide on (`DELETE`).
    pub operation: Option<Operation>,
    /// Sanitized name of the object; empty if the API server has not generated it yet
    /// (`generateName`).
    pub name: String,
    /// Sanitized namespace of the object.
    pub namespace: String,
    /// The user, with the first groups.
    pub user: User,
    /// Whether the API server will store nothing.
    pub dry_run: bool,
    /// The subresource. `None` for the object itself.
    pub sub_resource: Option<String>,
    /// The object; null on deletion.
    pub object: Value,
    /// The previous object.
    pub old_object: Option<Value>,
}

impl AdmissionRequest {
    /// Returns the admission request for policies, with the context of its namespace.
    pub fn admission(&self, operation: Operation, context: NamespaceContext) -> Admission {
        Admission {
            operation,
            user: self.user.clone(),
            dry_run: self.dry_run,
            sub_resource: self.sub_resource.clone(),
            namespace: self.namespace.clone(),
            context,
        }
    }

    /// Returns the same request about another object and its previous state.
    #[must_use]
    pub fn about(&self, object: Value, old_object: Option<Value>) -> Self {
        Self {
            version: self.version,
            reviewed: self.reviewed,
            uid: self.uid.clone(),
            operation: self.operation,
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            user: self.user.clone(),
            dry_run: self.dry_run,
            sub_resource: self.sub_resource.clone(),
            object,
            old_object,
        }
    }

    /// Whether policies decide on the request: not on an object that is being deleted, nor on an
    /// update that changes none of these `parts`. The webhook configurations exclude these and
    /// more; the check here protects users with other configurations.
    pub fn needs_policies(&self, parts: &[&str]) -> bool {
        let deleting = self
            .object
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(|time| !time.is_null());
        let is_unchanged = self.old_object.as_ref().is_some_and(|old| {
            let mut parts = parts.iter();
            parts.all(|part| old.pointer(part) == self.object.pointer(part))
        });
        self.operation.is_some() && !deleting && !is_unchanged
    }
}

/// Failure to parse a body.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The body is empty.
    #[error("the body is empty; an AdmissionReview of admission.k8s.io/v1 is expected")]
    Empty,
    /// It is not JSON, or exceeds the memory limit.
    #[error("the body is not an AdmissionReview that can be read: the text {0}")]
    Unreadable(#[source] BoundedJsonError),
    /// A field has the wrong type.
    #[error("the body is not an AdmissionReview in JSON: {0}")]
    WrongFields(#[source] serde_json::Error),
    /// It has another kind.
    #[error(
        "the body is a {kind:?} of {api_version:?}; an \"AdmissionReview\" of \
         \"admission.k8s.io/v1\" or \"admission.k8s.io/v1beta1\" is expected"
    )]
    OtherKind {
        /// `kind` of the body.
        kind: String,
        /// `apiVersion` of the body.
        api_version: String,
    },
    /// It has no request.
    #[error("the AdmissionReview has no field \"request\"")]
    NoRequest,
    /// The UID, which identifies the answer, is empty.
    #[error("the field \"request.uid\" is empty")]
    NoUid,
    /// The UID, which is in every log line of the request, is too long or not printable.
    #[error(
        "the field \"request.uid\" has {0} bytes; it must have at most {UID_MAX}, all of them ASCII characters that can \
         be printed"
    )]
    InvalidUid(usize),
    /// The object has another kind.
    #[error(
        "the field \"request.kind\" is {kind:?} of {group:?}; this webhook reviews {:?} of {:?}, so its webhook \
         configuration must name {} and nothing else",
        .expected.kind(), .expected.group(), .expected.resource()
    )]
    OtherObject {
        /// The kind that the webhook reviews.
        expected: Reviewed,
        /// Kind of the object.
        kind: String,
        /// Its group.
        group: String,
    },
    /// A field of the request is not an object.
    #[error("the field {field:?} of a {operation} must be an object")]
    NotAnObject {
        /// Path of the field.
        field: &'static str,
        /// The operation.
        operation: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

#[derive(Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Option<Vec<String>>,
}

impl From<UserInfo> for User {
    fn from(user: UserInfo) -> Self {
        let groups = user.groups.into_iter().flatten();
        Self {
            name: user.username,
            groups: groups.take(GROUPS_MAX).collect(),
        }
    }
}

#[derive(Default, Deserialize)]
struct Kind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    kind: String,
}

/// Parses the body of a call about an IPUJob.
pub fn parse(body: &[u8]) -> Result<AdmissionRequest, RequestError> {
    read(&measure(body)?, Reviewed::IPUJob)
}

/// Measures the memory that parsing the body takes.
pub fn measure<T: AsRef<[u8]>>(body: T) -> Result<Measured<T>, RequestError> {
    if body.as_ref().iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::Empty);
    }
    measure_object(body).map_err(RequestError::Unreadable)
}

/// Measures the memory that parsing an object takes.
pub fn measure_object<T: AsRef<[u8]>>(text: T) -> Result<Measured<T>, BoundedJsonError> {
    bounded_json::measure(text, TREE)
}

/// Parses a measured body, which is about an object of this kind.
pub fn read<T: AsRef<[u8]>>(
    body: &Measured<T>,
    reviewed: Reviewed,
) -> Result<AdmissionRequest, RequestError> {
    // Through a map, because serde also parses a struct from a list.
    let review = body.object().map_err(RequestError::Unreadable)?;
    let review: Review =
        serde_json::from_value(Value::Object(review)).map_err(RequestError::WrongFields)?;
    let version = match (review.kind.as_str(), review.api_version.as_str()) {
        ("AdmissionReview", "admission.k8s.io/v1") => ReviewVersion::V1,
        ("AdmissionReview", "admission.k8s.io/v1beta1") => ReviewVersion::V1Beta1,
        _ => {
            return Err(RequestError::OtherKind {
                kind: truncate(review.kind),
                api_version: truncate(review.api_version),
            });
        }
    };
    let request = review.request.ok_or(RequestError::NoRequest)?;
    let request: Request = serde_json::from_value(request).map_err(RequestError::WrongFields)?;
    check(version, reviewed, request)
}

fn check(
    version: ReviewVersion,
    reviewed: Reviewed,
    request: Request,
) -> Result<AdmissionRequest, RequestError> {
    if request.uid.is_empty() {
        return Err(RequestError::NoUid);
    }
    if request.uid.len() > UID_MAX || !request.uid.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(RequestError::InvalidUid(request.uid.len()));
    }
    if request.kind.kind != reviewed.kind() || request.kind.group != reviewed.group() {
        return Err(RequestError::OtherObject {
            expected: reviewed,
            kind: truncate(request.kind.kind),
            group: truncate(request.kind.group),
        });
    }
    let operation = match request.operation.as_str() {
        "CREATE" => Some(Operation::Create),
        "UPDATE" => Some(Operation::Update),
        _ => None,
    };
    let must_be_object = |value: &Value, field| {
        if value.is_object() {
            return Ok(());
        }
        Err(RequestError::NotAnObject {
            field,
            operation: truncate(request.operation.clone()),
        })
    };
    if operation.is_some() {
        must_be_object(&request.object, "request.object")?;
    }
    let old_object = if operation == Some(Operation::Update) {
        must_be_object(&request.old_object, "request.oldObject")?;
        Some(request.old_object)
    } else {
        None
    };
    Ok(AdmissionRequest {
        version,
        reviewed,
        uid: request.uid,
        operation,
        name: sanitize(&request.name.unwrap_or_default(), NAME_MAX),
        namespace: sanitize(&request.namespace.unwrap_or_default(), NAME_MAX),
        user: request.user_info.into(),
        dry_run: request.dry_run.unwrap_or_default(),
        sub_resource: request.sub_resource.filter(|part| !part.is_empty()),
        object: request.object,
        old_object,
    })
}

/// Cuts a text of the caller for a message.
fn truncate(text: String) -> String {
    if text.chars().count() <= 80 {
        return text;
    }
    text.chars().take(80).chain(['…']).collect()
}

#[cfg(test)]
pub(super) mod tests;
