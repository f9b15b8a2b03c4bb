//! Reads the request that a component is asked.

use std::path::Path;

use ipu_guest_host::Trial;
use ipu_guest_host::question::Question;

use super::PolicyCliError;
use super::document::document;

/// The request in the file, or without one the request that the operator tries policies on.
pub(super) fn question(trial: &Trial, file: Option<&Path>) -> Result<Question, PolicyCliError> {
    let Some(file) = file else {
        return Ok(trial.sample());
    };
    let value = document(file)?;
    Question::parse(trial.slot(), value).map_err(|source| PolicyCliError::Request {
        file: file.to_owned(),
        source,
    })
}
