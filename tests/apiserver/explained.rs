//! Why a job waits, and what would fit: each cause made real, and named in the conditions, in the answer to a query, by
//! `kubectl ipu why`, and in the queue of the dashboard.

mod capacity;
mod fit;
mod fixture;
mod kueue;
mod pods;
mod world;
