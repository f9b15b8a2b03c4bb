//! Generates the V-IPU client and server code from `proto/vipu.proto`, without protoc; nothing else.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use protox::prost::Message;

    const PROTO: &str = "vipu.proto";
    pack_relocations();
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

/// A static program moves its own pointers when it starts, and reads the list of them for that: packed it
/// takes a hundredth, on disk and in memory. The C library has known this form since 2.36; other linkers
/// than that for x86-64 may not.
fn pack_relocations() {
    let target = |name| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_static = target("FEATURE").split(',').any(|one| one == "crt-static");
    if is_static && target("ARCH") == "x86_64" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
