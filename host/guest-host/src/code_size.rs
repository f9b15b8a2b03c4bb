//! Pure: reads the sizes of a module's code and of its metadata from the ELF file of the code.

/// Name of the section with the encoded metadata: the types of the module, and its functions,
/// imports and exports.
const METADATA: &[u8] = b".wasmtime.info\0";

/// Offsets in the header of a file: of the table of sections, the size of an entry, the number of
/// entries, and the index of the section with the names.
const TABLE: usize = 0x28;
const ENTRY: usize = 0x3a;
const ENTRIES: usize = 0x3c;
const NAMES: usize = 0x3e;

/// Offsets in an entry for a section: of the offset of its content, and its size. The offset of its
/// name comes first.
const CONTENT: usize = 0x18;
const SIZE: usize = 0x20;

/// The sizes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeSize {
    /// The whole file.
    pub(super) code: u64,
    /// The encoded metadata, which is a part of it.
    pub(super) metadata: u64,
}

impl CodeSize {
    /// Reads the sizes. Returns `None` if this is no code.
    pub(super) fn of(code: &[u8]) -> Option<Self> {
        let table = number(code, TABLE, 8)?;
        let (entry, entries) = (number(code, ENTRY, 2)?, number(code, ENTRIES, 2)?);
        let field = |section: usize, place: usize, bytes: usize| {
            let at = table.checked_add(section * entry)?.checked_add(place)?;
            number(code, at, bytes)
        };
        let names = field(number(code, NAMES, 2)?, CONTENT, 8)?;
        for section in 0..entries {
            let name = names.checked_add(field(section, 0, 4)?)?;
            if code.get(name..)?.starts_with(METADATA) {
                return Some(Self {
                    code: code.len() as u64,
                    metadata: field(section, SIZE, 8)? as u64,
                });
            }
        }
        None
    }
}

/// A number of up to eight bytes.
fn number(code: &[u8], at: usize, bytes: usize) -> Option<usize> {
    let field = code.get(at..at.checked_add(bytes)?)?;
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(field);
    usize::try_from(u64::from_le_bytes(number)).ok()
}

#[cfg(test)]
mod tests {
    use wasmtime::component::Component;

    use super::*;
    use crate::engine::GuestEngine;
    use crate::limits::Limits;

    fn code(text: &str) -> Vec<u8> {
        let compiling = GuestEngine::compiling(Limits::default()).unwrap();
        let component = wat::parse_str(text).unwrap();
        let component = Component::new(&compiling.engine, component).unwrap();
        component.serialize().unwrap()
    }

    #[test]
    fn more_types_are_more_metadata() {
        let module = |more: &str| {
            let instance = "(core instance (instantiate $module))";
            code(&format!(
                "(component (core module $module (func) {more}) {instance})"
            ))
        };
        let types = (0..1_000).map(|of| format!("(type (func (param{})))", " i32".repeat(of)));
        let (small, large) = (module(""), module(&types.collect::<Vec<_>>().concat()));
        let sizes = [&small, &large].map(|code| CodeSize::of(code).unwrap());
        assert_eq!(sizes[0].code, small.len() as u64);
        assert!(sizes[0].metadata > 0, "{sizes:?}");
        assert!(sizes[1].metadata > sizes[0].metadata + 100_000, "{sizes:?}");
        assert!(sizes[1].metadata < sizes[1].code, "{sizes:?}");
    }

    #[test]
    fn what_is_no_code_has_no_size() {
        let good = code("(component)");
        assert!(CodeSize::of(&good).is_some());
        let (half, full) = (&good[..good.len() / 2], [0xff; 4_096]);
        let bad: [&[u8]; 5] = [&[], b"no code", half, &full, &[0; 4_096]];
        for bad in bad {
            assert_eq!(CodeSize::of(bad), None);
        }
    }
}
