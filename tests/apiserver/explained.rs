//! Reasons for the wait of a job, and the size that would fit: the tests create each cause, and
//! find it in the conditions, in the answer to a query, in `kubectl ipu why`, and in the queue of
//! the dashboard.

mod capacity;
mod fit;
mod fixture;
mod kueue;
mod pods;
mod world;
