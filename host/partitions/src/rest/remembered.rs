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
pub(super) enum Said {
    /// It is this user's.
    Good(UserInfo),
    /// It is nobody's, and why not.
    Bad(String),
}

/// Good tokens and bad ones, apart: no number of bad ones makes a good one forgotten.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    good: HashMap<Key, (UserInfo, Instant)>,
    bad: HashMap<Key, (String, Instant)>,
}

impl Remembered {
    /// What was said of a token lately.
    pub(super) fn recall(&self, key: &Key, now: Instant) -> Option<Said> {
        let good = recall(&self.good, key, now, GOOD).map(Said::Good);
        good.or_else(|| recall(&self.bad, key, now, BAD).map(Said::Bad))
    }

    /// Remembers what was said.
    pub(super) fn remember(&mut self, key: Key, said: Said, now: Instant) {
        match said {
            Said::Good(user) => remember(&mut self.good, key, user, now, GOOD),
            Said::Bad(why) => remember(&mut self.bad, key, why, now, BAD),
        }
    }
}

type Kept<T> = HashMap<Key, (T, Instant)>;

fn recall<T: Clone>(kept: &Kept<T>, key: &Key, now: Instant, time: Duration) -> Option<T> {
    let (value, since) = kept.get(key)?;
    (now.duration_since(*since) < time).then(|| value.clone())
}

fn remember<T>(kept: &mut Kept<T>, key: Key, value: T, now: Instant, time: Duration) {
    if kept.len() >= MAX {
        kept.retain(|_, (_, since)| now.duration_since(*since) < time);
    }
    // So many within so short a time: the next one is asked about again.
    if kept.len() < MAX {
        kept.insert(key, (value, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(name: &str) -> Said {
        Said::Good(UserInfo {
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
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        let bad = Said::Bad("it has expired".to_owned());
        remembered.remember(key(1), good("a"), now);
        remembered.remember(key(2), bad.clone(), now);
        assert_eq!(remembered.recall(&key(1), now), Some(good("a")));
        assert_eq!(remembered.recall(&key(2), now), Some(bad));
        assert_eq!(remembered.recall(&key(3), now), None);
        assert_eq!(remembered.recall(&key(2), now + BAD), None);
        assert_eq!(remembered.recall(&key(1), now + BAD), Some(good("a")));
        assert_eq!(remembered.recall(&key(1), now + GOOD), None);
    }

    #[test]
    fn many_tokens_neither_fill_the_memory_nor_make_a_good_one_forgotten() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        remembered.remember(key(0), good("a"), now);
        for number in 1..=2 * MAX {
            remembered.remember(key(number), Said::Bad(String::new()), now);
        }
        assert_eq!(remembered.bad.len(), MAX);
        assert_eq!(remembered.recall(&key(0), now), Some(good("a")));
        let late = now + BAD;
        remembered.remember(key(9_999), Said::Bad(String::new()), late);
        assert_eq!(remembered.bad.len(), 1);
    }
}
