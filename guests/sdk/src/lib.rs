//! What the guests of this repository share: the bindings of the contract, and the parts that their
//! decisions repeat.
//!
//! A guest implements the trait `Guest` of its world ([`defaulter`], [`validator`] or [`placer`])
//! for a type, and exports this type by [`export!`].
#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic
)]
#[allow(unused_imports, clippy::unwrap_used, clippy::panic)]
#[doc(hidden)]
pub mod bindings;
#[cfg(any(test, feature = "cases"))]
pub mod cases;
pub mod message;
pub mod object;
pub mod placement;
pub mod settings;

pub use bindings::defaulting::exports::ipu::policy::defaulter;
pub use bindings::defaulting::ipu::policy::types;
pub use bindings::placement::exports::ipu::policy::placer;
pub use bindings::validation::exports::ipu::policy::validator;

/// Exports a component of a world, as in `guest_sdk::export!(Component in placement)`.
///
/// The generated functions need unsafe code, which a guest allows nowhere else. Only WebAssembly
/// can link their names.
#[macro_export]
macro_rules! export {
    ($component:ident in $world:ident) => {
        #[cfg(target_family = "wasm")]
        #[allow(unsafe_code)]
        mod exports {
            use super::$component;

            $crate::bindings::$world::export!($component with_types_in $crate::bindings::$world);
        }
    };
}
