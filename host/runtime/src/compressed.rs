//! Pure: compresses objects of one kind in memory.
//!
//! Only for objects that a write contains as a whole: whatever else is read of an object is stored as typed fields. Objects of
//! one kind differ in little but names and times. Therefore an earlier object of the kind is the dictionary for the
//! compression of the next ones.

use serde::Serialize;
use serde::de::DeserializeOwned;
use zstd::bulk::{Compressor, Decompressor};

/// Compression level. A higher level does not compress objects of this size further.
const LEVEL: i32 = 1;

/// Maximum number of dictionaries of one kind. The first object of a new cluster is often short; a later object that is
/// larger by half replaces it as the dictionary of the following ones.
const DICTIONARIES_MAX: usize = 6;

/// Maximum size of a dictionary, in bytes. A larger object differs from the others.
const DICTIONARY_MAX: usize = 16 << 10;

/// A compressed object.
#[derive(Clone, Debug)]
pub struct Compressed {
    bytes: Box<[u8]>,
    /// Size of its JSON, in bytes.
    length: u32,
    /// Index of its dictionary.
    dictionary: u32,
}

/// Compresses and decompresses the objects of one kind.
#[derive(Default)]
pub struct ObjectCompressor {
    /// Uses the last dictionary.
    compressor: Option<Compressor<'static>>,
    decompressors: Vec<Decompressor<'static>>,
    /// Size of the last dictionary, in bytes.
    dictionary: usize,
}

impl ObjectCompressor {
    /// Compresses an object.
    ///
    /// # Panics
    /// If memory cannot be allocated.
    pub fn compress<K: Serialize>(&mut self, object: &K) -> Compressed {
        let json = serde_json::to_vec(object);
        let json = json.expect("an object that was decoded from JSON can be encoded");
        let is_larger =
            json.len() > self.dictionary + self.dictionary / 2 && json.len() <= DICTIONARY_MAX;
        if self.decompressors.is_empty()
            || (is_larger && self.decompressors.len() < DICTIONARIES_MAX)
        {
            self.add_dictionary(&json[..json.len().min(DICTIONARY_MAX)]);
        }
        let compressor = self.compressor.as_mut();
        let compressed = compressor
            .expect("the first object became a dictionary")
            .compress(&json)
            .expect("the output buffer has the maximum compressed size");
        Compressed {
            bytes: compressed.into(),
            length: u32::try_from(json.len()).expect("the API server limits objects to megabytes"),
            dictionary: u32::try_from(self.decompressors.len() - 1)
                .expect("DICTIONARIES_MAX bounds it"),
        }
    }

    /// Decompresses an object. The error means that its JSON cannot be decoded.
    ///
    /// # Panics
    /// If memory cannot be allocated.
    pub fn decompress<K: DeserializeOwned>(
        &mut self,
        compressed: &Compressed,
    ) -> Result<K, serde_json::Error> {
        let json = self.decompressors[compressed.dictionary as usize]
            .decompress(&compressed.bytes, compressed.length as usize)
            .expect("the same dictionary compressed it");
        serde_json::from_slice(&json)
    }

    fn add_dictionary(&mut self, dictionary: &[u8]) {
        let memory = "there is memory for a dictionary";
        let compressor = Compressor::with_dictionary(LEVEL, dictionary).expect(memory);
        self.compressor = Some(compressor);
        let decompressor = Decompressor::with_dictionary(dictionary).expect(memory);
        self.decompressors.push(decompressor);
        self.dictionary = dictionary.len();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(number: u32) -> Value {
        json!({
            "metadata": {"name": format!("mnist-{number}-worker-0"), "namespace": "default"},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"},
                {"type": "PodScheduled", "status": "True"},
            ]},
        })
    }

    #[test]
    fn similar_objects_become_small_and_all_objects_round_trip() {
        let mut compressor = ObjectCompressor::default();
        let objects = [
            json!(null),
            json!({"metadata": {"name": "mnist-0-worker-0"}}),
            pod(0),
            pod(5_000),
            json!({"other": "x".repeat(100_000)}),
        ];
        let compressed = objects.each_ref().map(|object| compressor.compress(object));
        assert!(
            compressed[3].bytes.len() * 4 < compressed[3].length as usize,
            "{compressed:?}"
        );
        for (object, compressed) in objects.iter().zip(&compressed) {
            assert_eq!(compressor.decompress::<Value>(compressed).unwrap(), *object);
        }
    }

    #[test]
    fn the_number_of_dictionaries_is_bounded() {
        let mut compressor = ObjectCompressor::default();
        let compressed: Vec<_> = (0..16)
            .map(|size| compressor.compress(&"x".repeat(1 << size)))
            .collect();
        assert_eq!(compressor.decompressors.len(), DICTIONARIES_MAX);
        for (size, compressed) in compressed.iter().enumerate() {
            assert_eq!(
                compressor.decompress::<String>(compressed).unwrap().len(),
                1 << size
            );
        }
    }

    #[test]
    fn an_object_that_cannot_be_decoded_affects_no_other() {
        let mut compressor = ObjectCompressor::default();
        let odd = compressor.compress(&json!({"time": "9999-12-31T23:59:59Z"}));
        let good = compressor.compress(&json!({"time": "2026-11-23T10:00:00Z"}));
        let decompressed = |compressor: &mut ObjectCompressor, compressed: &Compressed| {
            let read = compressor
                .decompress::<std::collections::BTreeMap<String, jiff::Timestamp>>(compressed);
            read.is_ok()
        };
        assert!(!decompressed(&mut compressor, &odd));
        assert!(decompressed(&mut compressor, &good));
    }
}
