//! Tokens that the API server was asked about: what it said, by the hash of the token and for a short time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::UserInfo;

/// How long a good token is not asked about again. A token that is revoked works for so long.
const GOOD: Duration = Duration::from_secs(10);

/// How long a token that was refused is not asked about again.
const BAD: Duration = Duration::from_secs(5);

/// Most tokens of each kind that are remembered.
const MAX: usize = 256;

/// The hash of a token.
pub(super) type Key = [u8; 32];

/// What the API server said of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is this user's.
    Good(UserInfo),
    /// It is nobody's, and why not.
    Bad(String),
}

/// Good tokens and bad ones, apart: no number of bad ones makes a good one forgotten.
#[derive(Debug, Default)]
pub(super) struct TokenCache {
    good: HashMap<Key, (UserInfo, Instant)>,
    bad: HashMap<Key, (String, Instant)>,
}

impl TokenCache {
    /// What was said of a token lately.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<Verdict> {
        let good = get(&self.good, key, now, GOOD).map(Verdict::Good);
        good.or_else(|| get(&self.bad, key, now, BAD).map(Verdict::Bad))
    }

    /// Remembers what was said.
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
    // So many within so short a time: the next one is asked about again.
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
