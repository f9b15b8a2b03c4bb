//! Runs the fuzz targets on their seeds, so that a fixed bug stays fixed where no nightly compiler
//! is installed.

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use self::seeds::seeds;
use super::*;

#[test]
fn seeds_of_controllers_yaml() {
    for (_, seed) in seeds("controllers_yaml") {
        controllers_yaml(&seed);
    }
}

#[test]
fn seeds_of_vipu_replies() {
    for (path, seed) in seeds("vipu_replies") {
        let seed = match path.extension() {
            Some(extension) if extension == "hex" => bytes(&seed),
            _ => seed,
        };
        vipu_replies(&seed);
    }
}

/// Decodes hexadecimal digits.
fn bytes(digits: &[u8]) -> Vec<u8> {
    let digits = String::from_utf8_lossy(digits).replace('\n', "");
    let pairs = (0..digits.len()).step_by(2);
    let bytes = pairs.map(|place| u8::from_str_radix(&digits[place..place + 2], 16));
    bytes.collect::<Result<_, _>>().unwrap()
}
