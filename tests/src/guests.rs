//! Guests that are in no release: hostile guests, and projects of `ipu-operator policy new`.

pub mod hostile;
pub mod project;
