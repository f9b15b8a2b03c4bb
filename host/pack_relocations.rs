//! For the build scripts of both programs: makes a static program smaller.

/// A static program moves its own pointers when it starts, and reads the list of them for that:
/// packed it takes a hundredth, on disk and in memory. The C library has known this form since
/// 2.36; other linkers than that for x86-64 may not.
pub(crate) fn pack_relocations() {
    let target = |name| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_static = target("FEATURE").split(',').any(|one| one == "crt-static");
    if is_static && target("ARCH") == "x86_64" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
