//! A seeded random number generator: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

/// A source of pseudo-random numbers.
#[derive(Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Rng(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.number() % (most - least + 1)
    }

    /// An index into something of this length, which must not be 0.
    pub(super) fn below(&mut self, length: usize) -> usize {
        let index = self.number() % u64::try_from(length).expect("a length fits");
        usize::try_from(index).expect("it is smaller than a length")
    }

    /// True in this number of a thousand cases.
    pub(super) fn permille(&mut self, cases: u64) -> bool {
        self.number() % 1_000 < cases
    }

    /// One of these, which must not be empty.
    pub(super) fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }
}
