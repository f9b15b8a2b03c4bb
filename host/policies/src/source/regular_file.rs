//! Opens regular files of a folder in which others may replace them by a link or a pipe at any
//! time.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Opens a regular file. A link could lead to any file, so it is not followed. A pipe can lack its
/// other end, so opening does not wait for that.
pub(super) fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = match options.custom_flags(flags.bits()).open(path) {
        Err(error) if is_irregular(&error) => return Err(irregular()),
        opened => opened?,
    };
    // What was opened is checked, and not the path, which can lead to another file by now.
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(irregular())
    }
}

/// Whether a link (`ELOOP`), or a pipe without a reader or a socket (`ENXIO`), was not opened.
fn is_irregular(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| [Errno::ELOOP, Errno::ENXIO].contains(&errno))
}

fn irregular() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "it is no regular file")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_none_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), b"x").unwrap();
        symlink(path("file"), path("link")).unwrap();
        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        let [mut read, mut write] = [File::options(), File::options()];
        read.read(true);
        write.write(true);
        for options in [&mut read, &mut write] {
            for name in ["link", "pipe", "folder", "socket"] {
                assert!(open_regular(options, &path(name)).is_err(), "{name}");
            }
            assert!(open_regular(options, &path("file")).is_ok());
            let missing = open_regular(options, &path("missing")).unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
        }
    }
}
