//! Shared code of the suites and benchmarks that needs the operator's packages.
//!
//! Entry points:
//! - [`load`], [`flood`], [`startup`] and [`figures`] measure; the programs `bench-*` print their results.
//! - [`described`] compares what `kubectl describe` shows, [`documents`] lists the documents whose commands run on nodes,
//!   [`mutations`] has the mistakes that `mutants` makes, and [`guests`] the guests that misbehave.
//! - [`operator_process`] finds the operator's processes on nodes, and [`debug_operator`] builds the operator and the plugin of
//!   kubectl for tests that run them themselves.
//! - [`chromium`] opens pages in a browser, and [`pictures`] lists the pictures of the dashboard. [`prometheus`] and
//!   [`registry`] are programs of Debian.
//!
//! It must not know how a cluster, a release, the installed operator or a simulated V-IPU controller is made: they are packages
//! of their own (`cluster`, `release`, `harness`, `vipu-simulator`), which must not depend on this one.
#![forbid(unsafe_code)]

pub mod chromium;
pub mod debug_operator;
pub mod described;
pub mod documents;
pub mod figures;
pub mod flood;
#[cfg(feature = "suites")]
pub mod guests;
pub mod kueue;
#[cfg(feature = "suites")]
pub mod languages;
pub mod load;
pub mod mutations;
pub mod operator_process;
pub mod pictures;
pub mod prometheus;
pub mod registry;
pub mod review;
pub mod startup;
