//! The generated messages, clients and servers of `proto/vipu.proto`, and the proof that they fit
//! the wire.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "generated code; what it means is written in proto/vipu.proto"
)]

include!(concat!(env!("OUT_DIR"), "/virmgrpc.rs"));

#[cfg(test)]
mod tests;
