//! Generates the client and the server of `proto/vipu.proto`, without protoc.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use protox::prost::Message;

const PROTO: &str = "vipu.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/{PROTO}");
    println!("cargo::rerun-if-changed=build.rs");
    let files = protox::compile([PROTO], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // The test of wire compatibility reads it.
    fs::write(out.join("vipu.descriptors"), files.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(false)
        .compile_fds(files)?;
    Ok(())
}
