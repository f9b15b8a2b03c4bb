//! The HTTP server of the page: one static page, and a small JSON API that only reads.

mod assets;
mod events;
pub mod guard;
pub mod parameters;
mod routes;
pub mod serve;

pub use self::guard::Guard;
pub use self::routes::{Sources, router};

#[cfg(test)]
mod tests;
