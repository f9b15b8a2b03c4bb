//! A lock on a folder for one process. It ends with that process, in every case.

use std::{
    fs::{File, TryLockError},
    io::{Read, Write},
    path::{Path, PathBuf},
};

use crate::files::{At, FileError, make_dir};

/// A lock that is held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Failure to take the lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file behind the lock could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process holds it.
    #[error(
        "another `harness` (process {holder}) works with {}: wait for it, or end it", path.display()
    )]
    Held {
        /// Process id of the holder, which the holder has written.
        holder: String,
        /// The file behind the lock.
        path: PathBuf,
    },
}

impl Lock {
    /// Takes the lock. The error names its holder.
    pub fn try_take(path: &Path) -> Result<Self, LockError> {
        let mut file = open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The number is only for the message.
                let _ = file.read_to_string(&mut holder);
                return Err(LockError::Held {
                    holder,
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(Err(error).at("lock", path)?),
        }
        let id = std::process::id().to_string();
        file.set_len(0).at("write", path)?;
        file.write_all(id.as_bytes()).at("write", path)?;
        Ok(Self { _file: file })
    }

    /// Waits until the lock is free, then takes it.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        let file = open(path)?;
        file.lock().at("lock", path)?;
        Ok(Self { _file: file })
    }
}

fn open(path: &Path) -> Result<File, FileError> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .at("open", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_held_lock_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::try_take(&path).unwrap();
        let error = Lock::try_take(&path).expect_err("held");
        let id = std::process::id().to_string();
        assert!(error.to_string().contains(&id), "{error}");
        drop(held);
        Lock::try_take(&path).unwrap();
    }
}
