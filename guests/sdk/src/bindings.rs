//! The bindings of the contract that `wit-bindgen` generates, a module for each world.

pub mod defaulting {
    wit_bindgen::generate!({
        path: "../../wit/0.2.0",
        world: "defaulting",
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
    });
}
/// Its violations are those of `defaulting`.
pub mod validation {
    wit_bindgen::generate!({
        path: "../../wit/0.2.0",
        world: "validation",
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
        with: {"ipu:policy/types@0.2.0": crate::bindings::defaulting::ipu::policy::types},
    });
}
pub mod placement {
    wit_bindgen::generate!({
        path: "../../wit/0.2.0",
        world: "placement",
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
    });
}
