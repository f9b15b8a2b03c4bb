//! Pure: makes jobs from a seed: sizes from 1 to 256 IPUs, gangs, bursts, and namespaces of
//! different sizes.

use std::sync::Arc;

use crate::jobs::Job;

/// Sizes of partitions, with their weights. Small ones are the most frequent, as in traces of real
/// clusters.
const SIZES: [(u32, u64); 9] = [
    (1, 40),
    (2, 14),
    (4, 14),
    (8, 12),
    (16, 8),
    (32, 5),
    (64, 4),
    (128, 2),
    (256, 1),
];

/// Partitions of a gang, with their weights.
const GANGS: [(u32, u64); 3] = [(1, 90), (2, 6), (4, 4)];

/// Largest partition of a gang.
const GANG_IPUS_MAX: u32 = 64;

/// Namespaces, with their weights: a few create most of the jobs.
const NAMESPACES: [(&str, u64); 8] = [
    ("vision", 840),
    ("speech", 420),
    ("language", 280),
    ("robotics", 210),
    ("biology", 168),
    ("climate", 140),
    ("finance", 120),
    ("students", 105),
];

/// Seconds between two jobs of a burst, at most.
const GAP: u64 = 60;

/// Durations: from 2^5 seconds (half a minute) up to 2^16 (18 hours), each power of two as likely
/// as the others.
const DURATIONS: (u64, u64) = (5, 16);

/// Makes jobs. Partitions have at most `largest` IPUs.
pub fn jobs(seed: u64, count: u32, largest: u32) -> Vec<Job> {
    let mut random = Random(seed);
    let namespaces = NAMESPACES.map(|(name, weight)| (Arc::<str>::from(name), weight));
    let mut arrival = 0;
    let jobs = (0..count).map(|_| {
        arrival += random.gap();
        let ipus = random.weighted(&SIZES).min(largest.max(1));
        let gang = random.weighted(&GANGS);
        Job {
            namespace: random.weighted(&namespaces),
            arrival,
            ipus,
            gang: if ipus <= GANG_IPUS_MAX { gang } else { 1 },
            duration: random.duration(),
        }
    });
    jobs.collect()
}

/// The generator splitmix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// Returns one of the values, by their weights.
    fn weighted<T: Clone, const N: usize>(&mut self, values: &[(T, u64); N]) -> T {
        let all: u64 = values.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.below(all);
        for (value, weight) in values {
            if drawn < *weight {
                return value.clone();
            }
            drawn -= weight;
        }
        values[N - 1].0.clone()
    }

    /// Returns the seconds until the next job: three of four are in bursts.
    fn gap(&mut self) -> u64 {
        let longest = if self.below(4) > 0 { GAP } else { 10 * GAP };
        self.below(longest)
    }

    fn duration(&mut self) -> u64 {
        let (from, to) = DURATIONS;
        let low = 1 << (from + self.below(to - from));
        low + self.below(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_jobs() {
        assert_eq!(jobs(7, 500, 256), jobs(7, 500, 256));
        assert_ne!(jobs(7, 500, 256), jobs(8, 500, 256));
        assert_eq!(jobs(7, 100, 256), jobs(7, 500, 256)[..100]);
    }

    #[test]
    fn the_mix_has_every_size_gangs_and_large_namespaces() {
        let jobs = jobs(1, 4_000, 256);
        for (ipus, _) in SIZES {
            assert!(jobs.iter().any(|job| job.ipus == ipus), "{ipus}");
        }
        for (gang, _) in GANGS {
            assert!(jobs.iter().any(|job| job.gang == gang), "{gang}");
        }
        let of = |name: &str| jobs.iter().filter(|job| *job.namespace == *name).count();
        assert!(of("vision") > 5 * of("students"), "{}", of("vision"));
        assert!(of("students") > 100, "{}", of("students"));
        assert!(jobs.is_sorted_by_key(|job| job.arrival));
        assert!(jobs.iter().all(|job| (32..65_536).contains(&job.duration)));
    }

    #[test]
    fn no_partition_is_larger_than_a_controller() {
        let jobs = jobs(1, 1_000, 16);
        assert!(jobs.iter().all(|job| job.ipus <= 16));
    }
}
