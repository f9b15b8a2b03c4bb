//! Pure: objects of one kind, small in memory.
//!
//! Ten thousand jobs have tens of thousands of objects, and those of one kind differ in names, times
//! and little else. So each is kept compressed, with an object seen before as the dictionary.

use serde::Serialize;
use serde::de::DeserializeOwned;
use zstd::bulk::{Compressor, Decompressor};

/// A higher level finds nothing more in objects of this size.
const LEVEL: i32 = 1;

/// Dictionaries of one kind. The first object of a new cluster says little, so a later one that says
/// half as much again takes its place for those that follow.
const SAMPLES: usize = 6;

/// Largest dictionary, in bytes. What is larger is not like the others.
const SAMPLE_MAX: usize = 16 << 10;

/// An object, packed.
#[derive(Debug)]
pub struct Packed {
    bytes: Box<[u8]>,
    /// Bytes of its JSON.
    length: u32,
    /// Which dictionary unpacks it.
    sample: u32,
}

/// Packs and unpacks the objects of one kind.
#[derive(Default)]
pub struct Packing {
    /// For the last of the dictionaries.
    compressor: Option<Compressor<'static>>,
    decompressors: Vec<Decompressor<'static>>,
    /// Bytes of the last dictionary.
    sample: usize,
}

impl Packing {
    /// # Panics
    /// Where there is no memory.
    pub fn pack<K: Serialize>(&mut self, object: &K) -> Packed {
        let json = serde_json::to_vec(object);
        let json = json.expect("an object that came as JSON can be written as JSON");
        let says_more = json.len() > self.sample + self.sample / 2 && json.len() <= SAMPLE_MAX;
        if self.decompressors.is_empty() || (says_more && self.decompressors.len() < SAMPLES) {
            self.learn(&json[..json.len().min(SAMPLE_MAX)]);
        }
        let compressor = self.compressor.as_mut();
        let packed = compressor
            .expect("the first object is a sample")
            .compress(&json)
            .expect("the output is as large as it may become");
        Packed {
            bytes: packed.into(),
            length: u32::try_from(json.len()).expect("the API server takes no object of gigabytes"),
            sample: u32::try_from(self.decompressors.len() - 1).expect("they are few"),
        }
    }

    /// The object, where what was written of it can be read again.
    ///
    /// # Panics
    /// Where there is no memory.
    pub fn unpack<K: DeserializeOwned>(&mut self, packed: &Packed) -> Result<K, serde_json::Error> {
        let json = self.decompressors[packed.sample as usize]
            .decompress(&packed.bytes, packed.length as usize)
            .expect("what was packed can be unpacked");
        serde_json::from_slice(&json)
    }

    fn learn(&mut self, sample: &[u8]) {
        let memory = "there is memory for a dictionary";
        let compressor = Compressor::with_dictionary(LEVEL, sample).expect(memory);
        self.compressor = Some(compressor);
        let decompressor = Decompressor::with_dictionary(sample).expect(memory);
        self.decompressors.push(decompressor);
        self.sample = sample.len();
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
    fn what_is_like_an_earlier_one_takes_little_and_everything_comes_back() {
        let mut packing = Packing::default();
        let objects = [
            json!(null),
            json!({"metadata": {"name": "mnist-0-worker-0"}}),
            pod(0),
            pod(5_000),
            json!({"other": "x".repeat(100_000)}),
        ];
        let packed = objects.each_ref().map(|object| packing.pack(object));
        assert!(
            packed[3].bytes.len() * 4 < packed[3].length as usize,
            "{packed:?}"
        );
        for (object, packed) in objects.iter().zip(&packed) {
            assert_eq!(packing.unpack::<Value>(packed).unwrap(), *object);
        }
    }

    #[test]
    fn the_number_of_dictionaries_is_bounded() {
        let mut packing = Packing::default();
        let packed: Vec<_> = (0..16)
            .map(|size| packing.pack(&"x".repeat(1 << size)))
            .collect();
        assert_eq!(packing.decompressors.len(), SAMPLES);
        for (size, packed) in packed.iter().enumerate() {
            assert_eq!(packing.unpack::<String>(packed).unwrap().len(), 1 << size);
        }
    }

    #[test]
    fn what_cannot_be_read_again_is_an_error_of_that_object_alone() {
        let mut packing = Packing::default();
        let odd = packing.pack(&json!({"time": "9999-12-31T23:59:59Z"}));
        let good = packing.pack(&json!({"time": "2026-11-23T10:00:00Z"}));
        let unpacked = |packing: &mut Packing, packed: &Packed| {
            let read =
                packing.unpack::<std::collections::BTreeMap<String, jiff::Timestamp>>(packed);
            read.is_ok()
        };
        assert!(!unpacked(&mut packing, &odd));
        assert!(unpacked(&mut packing, &good));
    }
}
