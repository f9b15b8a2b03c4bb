//! Pure: reads an AdmissionReview, and says what is wrong with a body that is none.
//!
//! kube's types for it are not used: they read the object's metadata into fixed fields, and a patch
//! must be made against the very JSON that the API server sent.

use ipu_api as api;
use ipu_text::sanitize;
use serde::Deserialize;
use serde_json::Value;

use ipu_guest_host::facts::{Admission, GROUPS_MAX, NamespaceFacts, User};
use ipu_guest_host::model::Operation;
use ipu_runtime::bounded_json::{self, BoundedJsonError, Budget, Measured};

/// Most memory that a review may take once it is read. Objects as users write them take some ten times their bytes:
/// one of 1.5 MiB, the most that etcd stores, can be created.
pub const TREE: Budget = Budget::of_memory(24 << 20);

/// Longest `uid` of a review, in bytes. An API server's has 36.
const UID_MAX: usize = 128;

/// Longest name of an object, in bytes, as Kubernetes has it. A longer one is cut: what the API server itself says of it
/// is more use to whoever gave it than a refusal of the call.
const NAME_MAX: usize = 253;

/// Versions of AdmissionReview; the answer has that of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`.
    V1Beta1,
}

impl ReviewVersion {
    /// The version as it is written.
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
    /// A Pod that requests IPUs itself.
    Pod,
}

impl Reviewed {
    /// API group of the kind.
    pub const fn group(self) -> &'static str {
        match self {
            Self::IPUJob => api::GROUP,
            Self::Pod => "",
        }
    }

    /// Name of the kind.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::IPUJob => "IPUJob",
            Self::Pod => "Pod",
        }
    }

    /// The resource in the rules of a webhook configuration.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::IPUJob => "ipujobs",
            Self::Pod => "pods",
        }
    }
}

/// What the API server asks about one object.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionRequest {
    /// Version of the question and of the answer.
    pub version: ReviewVersion,
    /// Kind of the reviewed object.
    pub reviewed: Reviewed,
    /// Goes back with the answer.
    pub uid: String,
    /// What is being done; `None` is something that there is nothing to say about (`DELETE`).
    pub operation: Option<Operation>,
    /// Name of the object as it can be shown; empty where the API server is yet to make one (`generateName`).
    pub name: String,
    /// Namespace of the object as it can be shown.
    pub namespace: String,
    /// Who asks; the first groups.
    pub user: User,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The part of the object that is written; none for the object itself.
    pub sub_resource: Option<String>,
    /// The object as it shall be; null where it goes.
    pub object: Value,
    /// The object as it was.
    pub old_object: Option<Value>,
}

impl AdmissionRequest {
    /// What a policy is told of the request, with what is known of its namespace.
    pub fn admission(&self, operation: Operation, facts: NamespaceFacts) -> Admission {
        Admission {
            operation,
            user: self.user.clone(),
            dry_run: self.dry_run,
            sub_resource: self.sub_resource.clone(),
            namespace: self.namespace.clone(),
            facts,
        }
    }

    /// Whether a policy has anything to say: not of an object that is being deleted, nor of an
    /// update that leaves the spec as it was. The webhook configurations leave these out as well;
    /// it is checked here too, so that nobody is locked out by a configuration of their own.
    pub fn concerns_policies(&self) -> bool {
        let deleting = self
            .object
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(|time| !time.is_null());
        let unchanged = self
            .old_object
            .as_ref()
            .is_some_and(|old| old.get("spec") == self.object.get("spec"));
        self.operation.is_some() && !deleting && !unchanged
    }
}

/// Why a body is not a question that the webhooks can answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no body.
    #[error("the body is empty; an AdmissionReview of admission.k8s.io/v1 is expected")]
    Empty,
    /// It is not JSON, or it would take too much memory.
    #[error("the body is not an AdmissionReview that can be read: the text {0}")]
    Unreadable(#[source] BoundedJsonError),
    /// Its fields are not of the types that they should be.
    #[error("the body is not an AdmissionReview in JSON: {0}")]
    WrongFields(#[source] serde_json::Error),
    /// It is JSON of something else.
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
    /// It is an answer, not a question.
    #[error("the AdmissionReview has no field \"request\"")]
    NoRequest,
    /// Without it no answer can be told from another.
    #[error("the field \"request.uid\" is empty")]
    NoUid,
    /// It is in every line of the log that comes of the request.
    #[error(
        "the field \"request.uid\" has {0} bytes; it must have at most {UID_MAX}, all of them ASCII characters that can \
         be printed"
    )]
    OddUid(usize),
    /// It asks about something else.
    #[error(
        "the field \"request.kind\" is {kind:?} of {group:?}; this webhook reviews {:?} of {:?}, so its webhook \
         configuration must name {} and no subresource",
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
    /// A field of the request holds the wrong thing.
    #[error("the field {field:?} of a {operation} must be an object")]
    NotAnObject {
        /// Path of the field.
        field: &'static str,
        /// What is being done.
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

/// Reads the body of a call about an IPUJob.
pub fn parse(body: &[u8]) -> Result<AdmissionRequest, RequestError> {
    read(&measured(body)?, Reviewed::IPUJob)
}

/// Says what the body of a webhook call takes once it is read.
pub fn measured<T: AsRef<[u8]>>(body: T) -> Result<Measured<T>, RequestError> {
    if body.as_ref().iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::Empty);
    }
    bounded_json::measure(body, TREE).map_err(RequestError::Unreadable)
}

/// Reads a body that was measured, which asks about an object of this kind.
pub fn read<T: AsRef<[u8]>>(
    body: &Measured<T>,
    reviewed: Reviewed,
) -> Result<AdmissionRequest, RequestError> {
    // By way of a map: serde would read a struct from a list as well.
    let review = body.object().map_err(RequestError::Unreadable)?;
    let review: Review =
        serde_json::from_value(Value::Object(review)).map_err(RequestError::WrongFields)?;
    let version = match (review.kind.as_str(), review.api_version.as_str()) {
        ("AdmissionReview", "admission.k8s.io/v1") => ReviewVersion::V1,
        ("AdmissionReview", "admission.k8s.io/v1beta1") => ReviewVersion::V1Beta1,
        _ => {
            return Err(RequestError::OtherKind {
                kind: cut(review.kind),
                api_version: cut(review.api_version),
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
        return Err(RequestError::OddUid(request.uid.len()));
    }
    if request.kind.kind != reviewed.kind() || request.kind.group != reviewed.group() {
        return Err(RequestError::OtherObject {
            expected: reviewed,
            kind: cut(request.kind.kind),
            group: cut(request.kind.group),
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
            operation: cut(request.operation.clone()),
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

/// A stranger's text is shown, but not all of it.
fn cut(text: String) -> String {
    if text.chars().count() <= 80 {
        return text;
    }
    text.chars().take(80).chain(['…']).collect()
}

#[cfg(test)]
pub(super) mod tests;
