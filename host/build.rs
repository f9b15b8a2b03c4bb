//! Generates the V-IPU client and server code from `proto/vipu.proto`, without protoc; nothing else.

#[cfg(feature = "operator")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use protox::prost::Message;

    const PROTO: &str = "vipu.proto";
    println!("cargo::rerun-if-changed=proto/{PROTO}");
    println!("cargo::rerun-if-changed=build.rs");
    let files = protox::compile([PROTO], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    // What the test of wire compatibility reads.
    std::fs::write(out.join("vipu.descriptors"), files.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}

/// The agent knows nothing of V-IPU.
#[cfg(not(feature = "operator"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
