//! Shared code of the suites that needs the operator's packages.
//!
//! Entry points:
//! - [`described`] compares what `kubectl describe` shows, [`documents`] lists the documents whose
//!   commands run on nodes, [`flood`] loads the operator's ports, and [`guests`] has the guests
//!   that misbehave.
//! - [`debug_operator`] builds the operator and the plugin of kubectl for tests that run them
//!   themselves.
//! - [`chromium`] opens pages in a browser, and [`pictures`] lists the pictures of the dashboard.
//!   [`prometheus`] and [`registry`] are programs of Debian.
//!
//! It must not know how a cluster, a release, the installed operator or a simulated V-IPU
//! controller is made: they are packages of their own (`cluster`, `release`, `harness`,
//! `vipu-simulator`), which must not depend on this one.
#![forbid(unsafe_code)]

pub mod chromium;
pub mod debug_operator;
pub mod described;
pub mod documents;
pub mod flood;
pub mod guests;
pub mod kueue;
pub mod languages;
pub mod pictures;
pub mod prometheus;
pub mod registry;
pub mod review;
