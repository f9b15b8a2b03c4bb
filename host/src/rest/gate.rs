//! Asks the API server who a token belongs to, and whether its holder may do what was asked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::bearer;
use super::limits::UserRate;
use super::problem::{Kind, Problem, shown};
use super::refusal;

/// Longest time that one answer of the API server is waited for.
const ASKING: Duration = Duration::from_secs(10);

/// How long a good token is not asked about again. A token that is revoked works for so long.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Most tokens that are remembered.
const REMEMBERED_MAX: usize = 256;

/// Tokens that the API server is asked about at the same time. So many made-up ones cannot take all
/// places of the port, nor more than a small part of what the API server does.
const REVIEWS: usize = 16;

/// How long somebody waits for a place among those.
const TURN: Duration = Duration::from_secs(1);

/// What may be done to IPUPartitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// See all of them.
    List,
    /// See one.
    Get,
    /// Make one.
    Create,
    /// Give one back.
    Delete,
}

impl Verb {
    /// As RBAC writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "get",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }
}

/// What somebody wants to do, as RBAC knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<'a> {
    /// To do this to the IPUPartition of this name, or to all of them.
    Partitions(Verb, Option<&'a str>),
    /// To read this path, which is no resource of the API.
    Read(&'static str),
}

/// Lets through who has a token for us and the right in RBAC.
pub struct Gate {
    client: Client,
    /// Whom tokens must be meant for; none: the API server itself.
    audience: Option<String>,
    remembered: Mutex<Remembered>,
    reviews: Semaphore,
    rate: UserRate,
}

/// Users by the hash of their token, and when the API server vouched for them.
type Remembered = HashMap<[u8; 32], (UserInfo, Instant)>;

impl Gate {
    /// A gate for tokens of this audience.
    pub fn new(client: Client, audience: &str) -> Self {
        Self::with_rate(client, Some(audience), UserRate::default())
    }

    /// A gate for tokens that are meant for the API server, as every Pod has one: Prometheus sends
    /// its own.
    pub fn of_pods(client: Client) -> Self {
        Self::with_rate(client, None, UserRate::default())
    }

    /// As `new`, with another pace of each user.
    pub(super) fn with_rate(client: Client, audience: Option<&str>, rate: UserRate) -> Self {
        Self {
            client,
            audience: audience.map(str::to_owned),
            remembered: Mutex::default(),
            reviews: Semaphore::new(REVIEWS),
            rate,
        }
    }

    /// The name of the user who sent these headers, where it may do as it wishes.
    pub async fn admit(&self, headers: &HeaderMap, wish: Wish<'_>) -> Result<String, Problem> {
        let lines = headers.get_all(header::AUTHORIZATION).into_iter();
        let token = bearer::token(lines.map(axum::http::HeaderValue::as_bytes))?;
        let user = self.user(token).await?;
        let username = user.username.clone().unwrap_or_default();
        self.rate.check(&username)?;
        self.authorize(user, wish).await?;
        Ok(username)
    }

    /// Whose token it is.
    async fn user(&self, token: &str) -> Result<UserInfo, Problem> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(user) = recall(&self.remembered(), &key, Instant::now()) {
            return Ok(user);
        }
        let Ok(_place) = tokio::time::timeout(TURN, self.reviews.acquire()).await else {
            return Err(busy());
        };
        // Somebody else may have come with it meanwhile.
        if let Some(user) = recall(&self.remembered(), &key, Instant::now()) {
            return Ok(user);
        }
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
        let asked = tokio::time::timeout(ASKING, reviews.create(&params, &review)).await;
        let reviewed = asked.map_err(|_| refusal::silent(action))?;
        let reviewed = reviewed.map_err(|error| asked_in_vain(action, &error))?;
        let status = reviewed.status.unwrap_or_default();
        let ours = self.audience.as_ref().is_none_or(|audience| {
            let audiences = status.audiences.as_ref();
            audiences.is_some_and(|all| all.contains(audience))
        });
        match status.user {
            Some(user) if status.authenticated == Some(true) && ours => {
                remember(&mut self.remembered(), key, user.clone(), Instant::now());
                Ok(user)
            }
            _ => Err(self.unknown(status.error.as_deref().unwrap_or_default())),
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
        let said = if why.is_empty() {
            String::new()
        } else {
            format!(" ({})", shown(why))
        };
        let detail = format!(
            "the API server does not know the token, it has expired, or it is not for \
             {meant}{said}; get one by `kubectl create token <service account>{option}`"
        );
        Problem::new(Kind::Unauthenticated, detail).with_header("www-authenticate", bearer::INVALID)
    }

    async fn authorize(&self, user: UserInfo, wish: Wish<'_>) -> Result<(), Problem> {
        let username = user.username.clone().unwrap_or_default();
        let (resource, path) = attributes(wish);
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
        let asked = tokio::time::timeout(ASKING, reviews.create(&params, &review)).await;
        let reviewed = asked.map_err(|_| refusal::silent(action))?;
        let reviewed = reviewed.map_err(|error| asked_in_vain(action, &error))?;
        let status = reviewed.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            Ok(())
        } else {
            Err(forbidden(&username, wish))
        }
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, Remembered> {
        // Every change of it is whole before the next one begins.
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A review that the API server did not carry out says nothing about whoever asks.
fn asked_in_vain(action: &str, error: &kube::Error) -> Problem {
    let problem = refusal::problem(action, error);
    Problem {
        faults: Vec::new(),
        ..Problem::new(Kind::Unavailable, problem.detail).with_header("retry-after", "1")
    }
}

fn busy() -> Problem {
    let detail = format!("{REVIEWS} tokens are being checked already; try again");
    Problem::new(Kind::Unavailable, detail).with_header("retry-after", "1")
}

/// A wish as the API server is asked about it.
fn attributes(wish: Wish<'_>) -> (Option<ResourceAttributes>, Option<NonResourceAttributes>) {
    match wish {
        Wish::Partitions(verb, name) => {
            let resource = ResourceAttributes {
                group: Some("graphcore.ai".to_owned()),
                version: Some("v1alpha1".to_owned()),
                resource: Some("ipupartitions".to_owned()),
                verb: Some(verb.as_str().to_owned()),
                name: name.map(str::to_owned),
                ..ResourceAttributes::default()
            };
            (Some(resource), None)
        }
        Wish::Read(path) => {
            let path = NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            };
            (None, Some(path))
        }
    }
}

fn forbidden(user: &str, wish: Wish<'_>) -> Problem {
    let subject = match user.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={user}"),
    };
    let detail = match wish {
        Wish::Partitions(verb, _) => {
            let verb = verb.as_str();
            format!(
                "{user} may not {verb} ipupartitions.graphcore.ai; an admin can grant it by \
                 `kubectl create clusterrole ipupartitions-{verb} --verb={verb} \
                 --resource=ipupartitions.graphcore.ai` and `kubectl create clusterrolebinding \
                 <name> --clusterrole=ipupartitions-{verb} {subject}`"
            )
        }
        Wish::Read(path) => format!(
            "{user} may not get {path}; an admin can grant it by `kubectl create \
             clusterrolebinding <name> --clusterrole=<release>-metrics-reader {subject}`"
        ),
    };
    Problem::new(Kind::Forbidden, detail)
}

fn recall(remembered: &Remembered, key: &[u8; 32], now: Instant) -> Option<UserInfo> {
    let (user, since) = remembered.get(key)?;
    (now.duration_since(*since) < REMEMBERED).then(|| user.clone())
}

fn remember(remembered: &mut Remembered, key: [u8; 32], user: UserInfo, now: Instant) {
    if remembered.len() >= REMEMBERED_MAX {
        remembered.retain(|_, (_, since)| now.duration_since(*since) < REMEMBERED);
    }
    // So many good tokens within so short a time: the next one is asked about again.
    if remembered.len() < REMEMBERED_MAX {
        remembered.insert(key, (user, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserInfo {
        UserInfo {
            username: Some(name.to_owned()),
            ..UserInfo::default()
        }
    }

    #[test]
    fn a_token_is_remembered_for_ten_seconds() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        remember(&mut remembered, [1; 32], user("a"), now);
        let late = now + REMEMBERED;
        assert_eq!(recall(&remembered, &[1; 32], now), Some(user("a")));
        assert_eq!(recall(&remembered, &[2; 32], now), None);
        assert_eq!(recall(&remembered, &[1; 32], late), None);
    }

    #[test]
    fn many_tokens_do_not_fill_the_memory() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        };
        for number in 0..2 * REMEMBERED_MAX {
            remember(&mut remembered, key(number), user("a"), now);
        }
        assert_eq!(remembered.len(), REMEMBERED_MAX);
        let late = now + REMEMBERED;
        remember(&mut remembered, key(9_999), user("b"), late);
        assert_eq!(remembered.len(), 1);
        assert!(recall(&remembered, &key(9_999), late).is_some());
    }
}
