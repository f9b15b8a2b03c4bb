//! Generates the V-IPU client and server code from `proto/vipu.proto`, without protoc; nothing else.

mod pack_relocations;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use protox::prost::Message;

    const PROTO: &str = "vipu.proto";
    pack_relocations::pack_relocations();
    println!("cargo::rerun-if-changed=proto/{PROTO}");
    println!("cargo::rerun-if-changed=build.rs");
    let files = protox::compile([PROTO], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    // What the test of wire compatibility reads.
    std::fs::write(out.join("vipu.descriptors"), files.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(false)
        .compile_fds(files)?;
    Ok(())
}
