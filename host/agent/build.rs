//! Makes the static program smaller; generates nothing.

#[path = "../pack_relocations.rs"]
mod pack_relocations;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pack_relocations::pack_relocations();
}
