//! Measurements of the operator beside its peers and beside loops without decisions, and the
//! mutations of its code.
//!
//! Entry points:
//! - [`load`] measures jobs and partitions on an API server without nodes, [`startup`] and
//!   [`figures`] the operator on real nodes. The programs `bench-*` print their results for
//!   BENCHMARKS.md.
//! - [`mutations`] lists mistakes in the code of the operator. The program `mutants` makes each of
//!   them, and checks that tests find it.
//!
//! It must not know the suites (`tests`), which must not depend on it: what both need is in
//! `cluster` and `harness`.
#![forbid(unsafe_code)]

pub mod figures;
pub mod load;
pub mod mutations;
pub mod startup;
