//! The platforms that a release is for.

/// What programs are compiled for, and what images call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// As Rust calls it.
    pub target: &'static str,
    /// The kind of processor, as images call it.
    pub architecture: &'static str,
}

/// What the lab itself runs on.
pub const AMD64: Platform = Platform {
    target: "x86_64-unknown-linux-gnu",
    architecture: "amd64",
};

/// What only a release is built for too.
pub const ARM64: Platform = Platform {
    target: "aarch64-unknown-linux-gnu",
    architecture: "arm64",
};
