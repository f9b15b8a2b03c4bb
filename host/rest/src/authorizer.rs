//! Authentication and authorization by the API server: TokenReview and SubjectAccessReview.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipu_ports::preemptive_semaphore::{PreemptiveSemaphore, Share};
use ipu_runtime::api_client::API_TIMEOUT;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::api_error;
use super::bearer;
use super::caller::Caller;
use super::limits::{UserRate, busy};
use super::problem::{Kind, Problem, shown};
use super::token_cache::{Key, TokenCache, Verdict};

/// Concurrent reviews of tokens. Invalid tokens cause only a small part of the load of the API
/// server, and those of one address do not delay the tokens of others.
const REVIEWS: Share = Share {
    total: 16,
    each: 4,
    queue: 64,
};

/// Longest wait for a review to start.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Verbs of RBAC on IPUPartitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Verb {
    /// List all of them.
    List,
    /// Read one.
    Get,
    /// Create one.
    Create,
    /// Delete one.
    Delete,
}

/// A permission of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission<'a> {
    /// This verb on the IPUPartition with this name, or on all of them.
    Partitions(Verb, Option<&'a str>),
    /// Reading this path, which is no resource of the API.
    Read(&'static str),
}

/// Authorizes requests by token and RBAC.
pub struct Authorizer {
    client: Client,
    /// Audience of the tokens. `None`: the API server itself.
    audience: Option<String>,
    token_cache: Mutex<TokenCache>,
    reviews: PreemptiveSemaphore,
    rate: UserRate,
}

impl Authorizer {
    /// An authorizer for tokens of this audience.
    pub fn new(client: Client, audience: &str) -> Self {
        Self::with_rate(client, Some(audience), UserRate::default())
    }

    /// An authorizer for tokens of the API server, as every Pod has one: Prometheus sends its own.
    pub fn of_pods(client: Client) -> Self {
        Self::with_rate(client, None, UserRate::default())
    }

    /// As `new`, with another rate limit of each user.
    pub(super) fn with_rate(client: Client, audience: Option<&str>, rate: UserRate) -> Self {
        Self {
            client,
            audience: audience.map(str::to_owned),
            token_cache: Mutex::default(),
            reviews: PreemptiveSemaphore::new(REVIEWS),
            rate,
        }
    }

    /// Returns the name of the user, if the user has the permission.
    pub async fn authorize(
        &self,
        caller: &Caller,
        permission: Permission<'_>,
    ) -> Result<String, Problem> {
        let user = self.user(caller.token()?, caller.address()).await?;
        let username = user.username.clone().unwrap_or_default();
        self.rate.check(&username)?;
        self.check_access(user, permission).await?;
        Ok(username)
    }

    /// The user of a token. A cached verdict needs no review.
    async fn user(&self, token: &str, address: IpAddr) -> Result<UserInfo, Problem> {
        let key: Key = Sha256::digest(token.as_bytes()).into();
        let recalled = || self.token_cache.lock().get(&key, Instant::now());
        let mut verdict = recalled();
        let mut permit = None;
        if verdict.is_none() {
            let acquired = self.reviews.acquire(address, 1, QUEUE_TIMEOUT).await;
            permit = Some(acquired.map_err(|full| busy(full, "tokens", "checked"))?);
            // Another request may have reviewed the token meanwhile.
            verdict = recalled();
        }
        let verdict = if let Some(verdict) = verdict {
            verdict
        } else {
            let verdict = self.review(token).await?;
            let mut token_cache = self.token_cache.lock();
            token_cache.insert(key, verdict.clone(), Instant::now());
            verdict
        };
        drop(permit);
        match verdict {
            Verdict::Good(user) => Ok(user),
            Verdict::Bad(why) => Err(self.unknown(&why)),
        }
    }

    /// Reviews a token at the API server.
    async fn review(&self, token: &str) -> Result<Verdict, Problem> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: self.audience.clone().map(|audience| vec![audience]),
                token: token.to_owned(),
            },
            ..TokenReview::default()
        };
        let action = "check the token";
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let params = PostParams::default();
        let asked = tokio::time::timeout(API_TIMEOUT, reviews.create(&params, &review)).await;
        let reviewed = asked.map_err(|_| api_error::timeout(action))?;
        let reviewed = reviewed.map_err(|error| failed_review(action, &error))?;
        let status = reviewed.status.unwrap_or_default();
        let ours = self.audience.as_ref().is_none_or(|audience| {
            let audiences = status.audiences.as_ref();
            audiences.is_some_and(|all| all.contains(audience))
        });
        match status.user {
            Some(user) if status.authenticated == Some(true) && ours => Ok(Verdict::Good(user)),
            _ => {
                let why = status.error.filter(|why| !why.is_empty());
                Ok(Verdict::Bad(why.as_deref().map(shown).unwrap_or_default()))
            }
        }
    }

    fn unknown(&self, why: &str) -> Problem {
        let (meant, option) = match &self.audience {
            Some(audience) => (
                format!("the audience {audience}"),
                format!(" --audience {audience}"),
            ),
            None => ("the API server".to_owned(), String::new()),
        };
        let verdict = if why.is_empty() {
            String::new()
        } else {
            format!(" ({why})")
        };
        let detail = format!(
            "the API server does not know the token, it has expired, or it is not for \
             {meant}{verdict}; get one by `kubectl create token <service account>{option}`"
        );
        Problem::new(Kind::Unauthenticated, detail).with_header("www-authenticate", bearer::INVALID)
    }

    async fn check_access(
        &self,
        user: UserInfo,
        permission: Permission<'_>,
    ) -> Result<(), Problem> {
        let username = user.username.clone().unwrap_or_default();
        let (resource, path) = attributes(permission);
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                resource_attributes: resource,
                non_resource_attributes: path,
            },
            ..SubjectAccessReview::default()
        };
        let action = "check the rights of the token's user";
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let params = PostParams::default();
        let asked = tokio::time::timeout(API_TIMEOUT, reviews.create(&params, &review)).await;
        let reviewed = asked.map_err(|_| api_error::timeout(action))?;
        let reviewed = reviewed.map_err(|error| failed_review(action, &error))?;
        let status = reviewed.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            Ok(())
        } else {
            Err(forbidden(&username, permission))
        }
    }
}

/// The problem of a failed review, which says nothing about the user.
fn failed_review(action: &str, error: &kube::Error) -> Problem {
    let problem = api_error::problem(action, error);
    Problem {
        faults: Vec::new(),
        ..Problem::new(Kind::Unavailable, problem.detail).with_header("retry-after", "1")
    }
}

/// A permission in the terms of a SubjectAccessReview.
fn attributes(
    permission: Permission<'_>,
) -> (Option<ResourceAttributes>, Option<NonResourceAttributes>) {
    match permission {
        Permission::Partitions(verb, name) => {
            let resource = ResourceAttributes {
                group: Some("graphcore.ai".to_owned()),
                version: Some("v1alpha1".to_owned()),
                resource: Some("ipupartitions".to_owned()),
                verb: Some(verb.to_string()),
                name: name.map(str::to_owned),
                ..ResourceAttributes::default()
            };
            (Some(resource), None)
        }
        Permission::Read(path) => {
            let path = NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            };
            (None, Some(path))
        }
    }
}

fn forbidden(user: &str, permission: Permission<'_>) -> Problem {
    let subject = match user.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={user}"),
    };
    let detail = match permission {
        Permission::Partitions(verb, _) => format!(
            "{user} may not {verb} ipupartitions.graphcore.ai; an admin can grant it by \
             `kubectl create clusterrole ipupartitions-{verb} --verb={verb} \
             --resource=ipupartitions.graphcore.ai` and `kubectl create clusterrolebinding \
             <name> --clusterrole=ipupartitions-{verb} {subject}`"
        ),
        Permission::Read(path) => format!(
            "{user} may not get {path}; an admin can grant it by `kubectl create \
             clusterrolebinding <name> --clusterrole=<release>-metrics-reader {subject}`"
        ),
    };
    Problem::new(Kind::Forbidden, detail)
}
