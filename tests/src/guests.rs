//! Guests that no release has: some that misbehave, and projects of `ipu-operator policy new`.

pub mod hostile;
pub mod project;
