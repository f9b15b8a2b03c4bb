//! Pure: parses JSON from outside into a tree only if a first pass over the text, which builds
//! nothing, has shown that the tree fits a budget.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Depth of [`Budget::of_memory`]. Objects of Kubernetes have some 20 levels; `serde_json` itself
/// ends at 128.
const DEPTH: usize = 100;

/// Prefix of keys that `serde_json` reserves for its own values: it parses the value after such a
/// key as another text.
const RESERVED: &str = "$serde_json::private::";

/// Size of one element of an array, in bytes.
const ELEMENT: usize = size_of::<Value>();

/// Size of a leaf of a `BTreeMap<String, Value>`, as the allocator rounds it. It holds up to 11
/// members.
const LEAF: usize = 640;

/// Size of an inner node of the same map, as the allocator rounds it.
const INNER: usize = 768;

/// Maximum size of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Memory, in bytes.
    pub memory: usize,
    /// Levels of objects and arrays.
    pub depth: usize,
}

impl Budget {
    /// A budget of this many bytes, with a depth that no object of Kubernetes reaches.
    pub const fn of_memory(memory: usize) -> Self {
        Self {
            memory,
            depth: DEPTH,
        }
    }
}

/// Reason for the rejection of a text. Each sentence continues "the text".
#[derive(Debug, thiserror::Error)]
pub enum BoundedJsonError {
    /// The tree would be too large.
    #[error(
        "has so many members and elements that it would take more than the limit of {limit} bytes of memory"
    )]
    Memory {
        /// The maximum, in bytes.
        limit: usize,
    },
    /// The tree would be too deep.
    #[error("has more than the limit of {limit} levels of objects and arrays")]
    Depth {
        /// The maximum number of levels.
        limit: usize,
    },
    /// A key that the parser would not treat as a key.
    #[error("has a key that starts with \"{RESERVED}\", which is reserved")]
    ReservedKey,
    /// It is not JSON.
    #[error("is not JSON: {0}")]
    NotJson(#[source] serde_json::Error),
}

/// A text with a tree within the budget.
#[derive(Clone, Copy, Debug)]
pub struct Measured<T> {
    text: T,
    memory: usize,
}

impl<T: AsRef<[u8]>> Measured<T> {
    /// Maximum memory for parsing the text into a tree, in bytes and without the text itself.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Length of the text, in bytes.
    pub fn length(&self) -> usize {
        self.text.as_ref().len()
    }

    /// Parses the tree.
    pub fn value(&self) -> Result<Value, BoundedJsonError> {
        serde_json::from_slice(self.text.as_ref()).map_err(BoundedJsonError::NotJson)
    }

    /// Parses the tree of a text that must be an object.
    pub fn object(&self) -> Result<Map<String, Value>, BoundedJsonError> {
        serde_json::from_slice(self.text.as_ref()).map_err(BoundedJsonError::NotJson)
    }
}

/// Scans `text` once, up to the first violated rule.
pub fn measure<T: AsRef<[u8]>>(text: T, budget: Budget) -> Result<Measured<T>, BoundedJsonError> {
    let mut measurement = Measurement {
        budget,
        tree: 0,
        scratch: 0,
        regrown: 0,
        broken: None,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(text.as_ref());
    let walk = Walk {
        measurement: &mut measurement,
        depth: 0,
    };
    let walked = walk.deserialize(&mut deserializer);
    let memory = measurement.peak();
    match walked.and_then(|()| deserializer.end()) {
        Ok(()) => Ok(Measured { text, memory }),
        Err(error) => Err(measurement
            .broken
            .unwrap_or(BoundedJsonError::NotJson(error))),
    }
}

/// Parses `text` if its tree is within the budget.
pub fn parse(text: &[u8], budget: Budget) -> Result<Value, BoundedJsonError> {
    measure(text, budget)?.value()
}

/// The counts so far.
struct Measurement {
    budget: Budget,
    /// Size of the tree.
    tree: usize,
    /// Buffer of the parser for the longest string with escapes.
    scratch: usize,
    /// The array that is copied while it grows.
    regrown: usize,
    broken: Option<BoundedJsonError>,
}

/// Ends the scan. The measurement contains the violated rule.
struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("beyond the budget")
    }
}

impl Measurement {
    fn peak(&self) -> usize {
        self.tree + self.scratch + self.regrown
    }

    fn check_memory(&mut self) -> Result<(), Broken> {
        let limit = self.budget.memory;
        if self.peak() > limit {
            return self.end(BoundedJsonError::Memory { limit });
        }
        Ok(())
    }

    fn end(&mut self, rule: BoundedJsonError) -> Result<(), Broken> {
        self.broken = Some(rule);
        Err(Broken)
    }

    fn level(&mut self, depth: usize) -> Result<(), Broken> {
        let limit = self.budget.depth;
        if depth >= limit {
            return self.end(BoundedJsonError::Depth { limit });
        }
        Ok(())
    }

    /// A string of this length, as the allocator rounds it.
    fn string(&mut self, length: usize) -> Result<(), Broken> {
        let rounding = if length > 128 { length / 4 } else { 0 };
        self.tree += length.next_multiple_of(16) + rounding;
        self.check_memory()
    }

    /// The parser writes a string with escapes into a buffer first. The buffer grows by doubling.
    fn unescaped(&mut self, length: usize) {
        self.scratch = self.scratch.max(3 * length);
    }

    fn key(&mut self, key: &str) -> Result<(), Broken> {
        if key.starts_with(RESERVED) {
            return self.end(BoundedJsonError::ReservedKey);
        }
        self.string(key.len())
    }

    /// Member `number` of an object. Each node except a single one has at least five of its eleven
    /// members. So a further leaf needs at least six more members, and a further inner node five
    /// more leaves.
    fn member(&mut self, number: usize) -> Result<(), Broken> {
        self.tree += match number {
            1 => LEAF,
            12 => LEAF + INNER,
            17.. if (number + 1).is_multiple_of(6) => LEAF + INNER / 5,
            _ => 0,
        };
        self.check_memory()
    }

    /// Element `number` of an array. The capacity is four elements at first, and doubles when the
    /// array is full.
    fn element(&mut self, number: usize) -> Result<(), Broken> {
        let full = number - 1;
        if number == 1 {
            self.tree += 4 * ELEMENT;
        } else if full >= 4 && full.is_power_of_two() {
            self.tree += full * ELEMENT;
            self.regrown = self.regrown.max(full * ELEMENT);
        }
        self.check_memory()
    }
}

/// A value: all its parts are counted and dropped.
struct Walk<'a> {
    measurement: &'a mut Measurement,
    depth: usize,
}

impl Walk<'_> {
    fn inner(&mut self) -> Walk<'_> {
        Walk {
            measurement: &mut *self.measurement,
            depth: self.depth + 1,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<(), E> {
        self.measurement.string(text.len()).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.measurement.unescaped(text.len());
        self.measurement.string(text.len()).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        self.measurement
            .level(self.depth)
            .map_err(A::Error::custom)?;
        let mut number = 0;
        while elements.next_element_seed(self.inner())?.is_some() {
            number += 1;
            self.measurement.element(number).map_err(A::Error::custom)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.measurement
            .level(self.depth)
            .map_err(A::Error::custom)?;
        let mut number = 0;
        while members
            .next_key_seed(Key(&mut *self.measurement))?
            .is_some()
        {
            number += 1;
            self.measurement.member(number).map_err(A::Error::custom)?;
            members.next_value_seed(self.inner())?;
        }
        Ok(())
    }
}

/// The key of a member.
struct Key<'a>(&'a mut Measurement);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<(), E> {
        self.0.key(key).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        self.0.unescaped(key.len());
        self.0.key(key).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests;
