//! Cache of token reviews, by the hash of the token, for a short time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::UserInfo;

/// Lifetime of a positive verdict. A revoked token works for this long.
const GOOD: Duration = Duration::from_secs(10);

/// Lifetime of a negative verdict.
const BAD: Duration = Duration::from_secs(5);

/// Most entries of each kind.
const MAX: usize = 256;

/// The hash of a token.
pub(super) type Key = [u8; 32];

/// The verdict of the API server about a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is valid, and belongs to this user.
    Good(UserInfo),
    /// It is invalid, for this reason.
    Bad(String),
}

/// Positive and negative verdicts, stored apart: no number of invalid tokens evicts a valid one.
#[derive(Debug, Default)]
pub(super) struct TokenCache {
    good: HashMap<Key, (UserInfo, Instant)>,
    bad: HashMap<Key, (String, Instant)>,
}

impl TokenCache {
    /// The cached verdict.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<Verdict> {
        let good = get(&self.good, key, now, GOOD).map(Verdict::Good);
        good.or_else(|| get(&self.bad, key, now, BAD).map(Verdict::Bad))
    }

    /// Stores a verdict.
    pub(super) fn insert(&mut self, key: Key, verdict: Verdict, now: Instant) {
        match verdict {
            Verdict::Good(user) => insert(&mut self.good, key, user, now, GOOD),
            Verdict::Bad(why) => insert(&mut self.bad, key, why, now, BAD),
        }
    }
}

type Entries<T> = HashMap<Key, (T, Instant)>;

fn get<T: Clone>(entries: &Entries<T>, key: &Key, now: Instant, time: Duration) -> Option<T> {
    let (value, since) = entries.get(key)?;
    (now.duration_since(*since) < time).then(|| value.clone())
}

fn insert<T>(entries: &mut Entries<T>, key: Key, value: T, now: Instant, time: Duration) {
    if entries.len() >= MAX {
        entries.retain(|_, (_, since)| now.duration_since(*since) < time);
    }
    // The cache is full: the next request reviews the token again.
    if entries.len() < MAX {
        entries.insert(key, (value, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(name: &str) -> Verdict {
        Verdict::Good(UserInfo {
            username: Some(name.to_owned()),
            ..UserInfo::default()
        })
    }

    fn key(number: usize) -> Key {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    #[test]
    fn a_good_token_is_remembered_for_ten_seconds_and_a_bad_one_for_five() {
        let (mut token_cache, now) = (TokenCache::default(), Instant::now());
        let bad = Verdict::Bad("it has expired".to_owned());
        token_cache.insert(key(1), good("a"), now);
        token_cache.insert(key(2), bad.clone(), now);
        assert_eq!(token_cache.get(&key(1), now), Some(good("a")));
        assert_eq!(token_cache.get(&key(2), now), Some(bad));
        assert_eq!(token_cache.get(&key(3), now), None);
        assert_eq!(token_cache.get(&key(2), now + BAD), None);
        assert_eq!(token_cache.get(&key(1), now + BAD), Some(good("a")));
        assert_eq!(token_cache.get(&key(1), now + GOOD), None);
    }

    #[test]
    fn many_tokens_neither_fill_the_memory_nor_make_a_good_one_forgotten() {
        let (mut token_cache, now) = (TokenCache::default(), Instant::now());
        token_cache.insert(key(0), good("a"), now);
        for number in 1..=2 * MAX {
            token_cache.insert(key(number), Verdict::Bad(String::new()), now);
        }
        assert_eq!(token_cache.bad.len(), MAX);
        assert_eq!(token_cache.get(&key(0), now), Some(good("a")));
        let late = now + BAD;
        token_cache.insert(key(9_999), Verdict::Bad(String::new()), late);
        assert_eq!(token_cache.bad.len(), 1);
    }
}
