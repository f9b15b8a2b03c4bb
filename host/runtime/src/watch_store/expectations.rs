//! Pure: what was written, and a watch has yet to tell of.
//!
//! What others write may always arrive late: names that can be given once, and preconditions, make decisions on an old
//! view harmless. What this process has written itself must be in the view before it decides again, or it would do the
//! same thing twice.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use ipu_api::uid::Uid;

/// How many ends are remembered: more than requests can be under way.
const ENDS: usize = 1_024;

/// Owners that are kept however old their writes are: to look through so few is not worth it.
const FEW: usize = 1_024;

/// Writes to objects, by the owner about which nothing is to be decided meanwhile.
#[derive(Debug)]
pub struct Expectations {
    patience: Duration,
    writes: HashMap<Uid, Vec<Write>>,
    /// So many owners are looked through for those whose writes are not waited for any more.
    full: usize,
    /// The objects that went last: the watch may tell of an end before the answer to the request arrives.
    ended: VecDeque<Uid>,
}

#[derive(Debug)]
struct Write {
    object: Uid,
    version: u64,
    at: Instant,
    /// How many lists had begun.
    lists: u32,
}

impl Expectations {
    /// None yet, of a watch that is waited for so long.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            writes: HashMap::new(),
            full: FEW,
            ended: VecDeque::new(),
        }
    }

    /// An object was written, and has this version now; `u64::MAX`: only its end will do. So many lists had begun.
    pub fn expect(&mut self, owner: Uid, (object, version): (Uid, u64), lists: u32, now: Instant) {
        if self.ended.contains(&object) {
            return;
        }
        if self.writes.len() >= self.full {
            let patience = self.patience;
            self.writes
                .retain(|_, writes| writes.iter().any(|one| one.left(patience, now).is_some()));
            self.full = FEW.max(2 * self.writes.len());
        }
        self.writes.entry(owner).or_default().push(Write {
            object,
            version,
            at: now,
            lists,
        });
    }

    /// A watch tells of an object at this version, `u64::MAX`: or nothing of it is waited for any more.
    pub fn told(&mut self, owner: Uid, object: Uid, version: u64) {
        if let Some(writes) = self.writes.get_mut(&owner) {
            writes.retain(|one| one.object != object || one.version > version);
            if writes.is_empty() {
                self.writes.remove(&owner);
            }
        }
    }

    /// A watch tells that an object is gone.
    pub fn ended(&mut self, owner: Uid, object: Uid) {
        if self.ended.len() == ENDS {
            self.ended.pop_front();
        }
        self.ended.push_back(object);
        self.told(owner, object, u64::MAX);
    }

    /// A list is complete, the last of so many. What is not there is gone, but for what may be younger: what was
    /// written since the list began.
    pub fn listed(&mut self, lists: u32, is_there: impl Fn(Uid, Uid) -> bool) {
        self.writes.retain(|owner, writes| {
            writes.retain(|one| one.lists == lists || is_there(*owner, one.object));
            !writes.is_empty()
        });
    }

    /// How much longer to wait for the watch, where it has not told of all that was written.
    pub fn left(&self, owner: Uid, now: Instant) -> Option<Duration> {
        let writes = self.writes.get(&owner).into_iter().flatten();
        writes.filter_map(|one| one.left(self.patience, now)).max()
    }

    /// Whether a watch has not told of all that was written, however long ago that was.
    pub fn knows(&self, owner: Uid) -> bool {
        self.writes.contains_key(&owner)
    }
}

impl Write {
    fn left(&self, patience: Duration, now: Instant) -> Option<Duration> {
        let left = patience.saturating_sub(now.duration_since(self.at));
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn what_was_written_is_waited_for_until_it_is_told_of_and_not_for_ever() {
        let (mut expectations, now) = (Expectations::new(PATIENCE), Instant::now());
        let [owner, object, other] = ["owner", "object", "other"].map(Uid::of);
        assert_eq!(expectations.left(owner, now), None);
        expectations.expect(owner, (object, 7), 1, now);
        expectations.expect(owner, (other, u64::MAX), 1, now + Duration::from_secs(1));
        let left = |expectations: &Expectations, after| {
            let left = expectations.left(owner, now + Duration::from_secs(after));
            left.map(|left| left.as_secs())
        };
        assert_eq!(left(&expectations, 2), Some(4), "the youngest counts");
        assert_eq!(left(&expectations, 6), None);
        expectations.told(owner, object, 6);
        expectations.ended(owner, other);
        assert_eq!(left(&expectations, 2), Some(3));
        expectations.told(owner, object, 7);
        assert_eq!(left(&expectations, 2), None);
        assert!(!expectations.knows(owner));
        expectations.expect(owner, (other, 9), 1, now);
        assert!(
            !expectations.knows(owner),
            "it was gone before the answer arrived"
        );
    }

    #[test]
    fn what_a_list_does_not_name_is_waited_for_only_if_it_may_be_younger() {
        let (mut expectations, now) = (Expectations::new(PATIENCE), Instant::now());
        let [before, named, since] = ["before", "named", "since"].map(Uid::of);
        expectations.expect(before, (before, 7), 1, now);
        expectations.expect(named, (named, 7), 1, now);
        expectations.expect(since, (since, 7), 2, now);
        expectations.listed(2, |_, object| object == named);
        let known = [before, named, since].map(|owner| expectations.knows(owner));
        assert_eq!(known, [false, true, true]);
    }

    #[test]
    fn what_is_not_waited_for_any_more_goes_once_there_is_much() {
        let (mut expectations, now) = (Expectations::new(PATIENCE), Instant::now());
        let uid = |number: usize| Uid::of(&number.to_string());
        for number in 0..FEW {
            expectations.expect(uid(number), (uid(number), 1), 0, now);
        }
        assert!(expectations.knows(uid(0)));
        let later = now + PATIENCE;
        for number in FEW..4 * FEW {
            expectations.expect(uid(number), (uid(number), 1), 0, later);
        }
        assert_eq!(
            expectations.writes.len(),
            3 * FEW,
            "all of them are waited for"
        );
    }
}
