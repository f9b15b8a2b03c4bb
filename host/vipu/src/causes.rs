//! Pure: an error with the errors that it was caused by.

use std::error::Error;

/// An error and all that it was caused by, in one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    texts.join(": ")
}

/// The error itself and everything that it was caused by, outermost first.
pub(super) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
