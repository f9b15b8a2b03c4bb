//! Guests that are not built from `guests` or `examples`: hostile guests, projects of
//! `ipu-operator policy new`, and those of the previous release.

pub mod hostile;
pub mod project;
pub mod released;
