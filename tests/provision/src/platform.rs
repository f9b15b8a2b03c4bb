//! The platforms that a release is for.

/// The target of programs, and its name in images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Its name in Rust.
    pub target: &'static str,
    /// Its architecture, as images name it.
    pub architecture: &'static str,
}

/// The platform of the harness.
pub const AMD64: Platform = Platform {
    target: "x86_64-unknown-linux-gnu",
    architecture: "amd64",
};

/// A platform that only releases are built for.
pub const ARM64: Platform = Platform {
    target: "aarch64-unknown-linux-gnu",
    architecture: "arm64",
};
