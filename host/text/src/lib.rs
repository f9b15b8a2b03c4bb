//! Makes text fit for users: errors, text from outside, and objects that contain secrets.
//!
//! Both programs of the operator use it for logs, status messages, events and the archive of a bug
//! report.
//!
//! Entry points:
//! - [`explain`] returns an error with all its causes in one line.
//! - [`sanitize`] limits the length of text from outside and replaces characters that control a
//!   terminal. [`sanitize_lines`] keeps the lines of the text, and [`is_plain`] returns whether a
//!   character stays as it is.
//! - [`listed`] joins the first of many texts, and counts the others.
//! - [`redaction::Values`] removes the values of environment variables from objects and from text
//!   about them.
//!
//! It does no I/O. It must not know jobs, partitions, policies, the V-IPU, or any other package of
//! this workspace. Of kube it knows only the error of a refused request.
#![forbid(unsafe_code)]

mod explain;
mod listed;
pub mod redaction;
mod sanitize;

pub use explain::explain;
pub use listed::listed;
pub use sanitize::{is_plain, sanitize, sanitize_lines};
