//! Pure: what cargo's own progress bar says.

/// The state of a build.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State<'a> {
    pub(super) done: usize,
    pub(super) total: usize,
    /// The crates that are compiled now.
    pub(super) now: &'a str,
}

/// Reads a state of the bar, such as `Building [==>  ] 12/610: serde, syn`. `None` for any other
/// line.
pub(super) fn read(line: &str) -> Option<State<'_>> {
    let (_, bar) = line.split_once("Building")?;
    let (_, counts) = bar.split_once(']')?;
    let (counts, now) = counts.split_once(": ").unwrap_or((counts, ""));
    let (done, total) = counts.trim().split_once('/')?;
    // Escape sequences of the terminal may follow.
    let total: String = total.chars().take_while(char::is_ascii_digit).collect();
    Some(State {
        done: done.parse().ok()?,
        total: total.parse().ok()?,
        now: now.split('\u{1b}').next().unwrap_or_default().trim(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_of_cargo_is_read() {
        let state = read("\u{1b}[K    Building [=====>      ] 120/610: serde, syn(build)    ");
        let expected = State {
            done: 120,
            total: 610,
            now: "serde, syn(build)",
        };
        assert_eq!(state, Some(expected));
        let state = read("    Building [            ] 0/610\u{1b}[K").unwrap();
        assert_eq!((state.done, state.total, state.now), (0, 610, ""));
    }

    #[test]
    fn other_lines_are_no_state() {
        for line in [
            "   Compiling serde v1.0.0",
            "    Building something",
            "    Building [==>] a/b",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
