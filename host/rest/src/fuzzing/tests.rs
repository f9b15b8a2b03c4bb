//! Runs the fuzz target on its seeds, so that a fixed bug stays fixed where no nightly compiler is
//! installed.

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use self::seeds::seeds;
use super::*;

#[test]
fn seeds_of_rest_bodies() {
    for (_, seed) in seeds("rest_bodies") {
        rest_bodies(&seed);
    }
}
