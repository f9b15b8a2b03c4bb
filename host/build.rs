//! Makes the static program smaller; generates nothing.

mod pack_relocations;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pack_relocations::pack_relocations();
}
