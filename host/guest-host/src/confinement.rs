//! Denies the compiling process files, network and other processes, before it reads a module.
//!
//! A module can exploit a fault of the compiler. The child has the user and the volumes of the
//! operator, such as the token of its ServiceAccount. After [`confine`] it can open nothing: a new
//! file or socket of any kind needs a free descriptor. Landlock also denies what needs no
//! descriptor: to remove or rename files, to trace the operator, and to signal it. Without
//! Landlock, only the container limits that.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, Ruleset,
    RulesetAttr, RulesetError, Scope,
};
use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};

/// The rights of Landlock that this version handles: files, TCP, and sockets and signals of other
/// processes.
const HANDLED: ABI = ABI::V6;

/// The part of the confinement by Landlock that the kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landlock {
    /// Files, TCP, and other processes.
    Full,
    /// Less, because the kernel is older.
    Partial,
    /// Nothing: the kernel has no Landlock, or it is disabled.
    Absent,
}

impl Landlock {
    const ALL: [Self; 3] = [Self::Full, Self::Partial, Self::Absent];

    /// The byte by which the child reports it.
    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Full => b'f',
            Self::Partial => b'p',
            Self::Absent => b'a',
        }
    }

    /// Returns the reported part. `None` if the byte is no report.
    pub(super) fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|landlock| landlock.byte() == byte)
    }

    /// Logs what the confinement of the compiling process lacks on this kernel.
    pub(super) fn log(self) {
        match self {
            Self::Full => tracing::info!(
                "modules are compiled in a process without files, network and other processes"
            ),
            Self::Partial => tracing::info!(
                "modules are compiled in a process that can open no file and no connection; this kernel enforces \
                 a part of the further limits by Landlock, and Linux 6.12 enforces all"
            ),
            Self::Absent => tracing::warn!(
                "Landlock is not available: the process that compiles modules can open no file and no connection, \
                 and only the container limits what else it does"
            ),
        }
    }
}

/// Confines this process and returns what Landlock adds. Open files and pipes remain usable. The
/// process must have one thread, because Landlock restricts the calling thread and those that it
/// starts.
pub(super) fn confine() -> Result<Landlock, Errno> {
    // First, because Landlock needs a descriptor for its rules.
    let landlock = restrict().unwrap_or(Landlock::Absent);
    // The limit applies to the number of a descriptor, so a closed one cannot be replaced.
    setrlimit(Resource::RLIMIT_NOFILE, 0, 0)?;
    Ok(landlock)
}

/// Restricts this thread, and the threads that it starts.
fn restrict() -> Result<Landlock, RulesetError> {
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(HANDLED))?
        .handle_access(AccessNet::from_all(HANDLED))?
        .scope(Scope::from_all(HANDLED))?
        .create()?
        .restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= HANDLED => {
            Landlock::Full
        }
        LandlockStatus::Available { .. } => Landlock::Partial,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => Landlock::Absent,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Marks the process that the test starts: the file that it may not open, and the port that it
    /// may not reach.
    const TOKEN: &str = "IPU_OPERATOR_TEST_TOKEN";
    const PORT: &str = "IPU_OPERATOR_TEST_PORT";

    #[test]
    fn a_confined_process_reads_no_token_and_opens_no_connection() {
        if let Ok(token) = std::env::var(TOKEN) {
            return be_confined(Path::new(&token));
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let token = std::env::temp_dir().join(format!("ipu-operator-token-{}", std::process::id()));
        fs::write(&token, "secret").unwrap();
        let name = "confinement::tests::a_confined_process_reads_no_token_and_opens_no_connection";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(TOKEN, &token)
            .env(PORT, port.to_string())
            .output()
            .unwrap();
        let remains = fs::read_to_string(&token);
        fs::remove_file(&token).unwrap();
        let printed = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{child:?}");
        assert!(printed.contains("confined: "), "{printed}");
        assert_eq!(remains.unwrap(), "secret");
    }

    /// Runs in the child. Every attempt succeeds before and fails after.
    fn be_confined(token: &Path) {
        let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
        let attempts = || -> [io::Result<()>; 4] {
            [
                fs::read(token).map(drop),
                TcpStream::connect(("127.0.0.1", port)).map(drop),
                TcpListener::bind("127.0.0.1:0").map(drop),
                UdpSocket::bind("127.0.0.1:0").map(drop),
            ]
        };
        for attempt in attempts() {
            attempt.unwrap();
        }
        let landlock = confine().unwrap();
        for attempt in attempts() {
            attempt.unwrap_err();
        }
        // To remove a file needs no descriptor, so only Landlock denies it.
        if landlock != Landlock::Absent {
            fs::remove_file(token).unwrap_err();
        }
        println!("confined: {landlock:?}");
    }

    #[test]
    fn each_report_has_a_byte() {
        for landlock in Landlock::ALL {
            assert_eq!(Landlock::of_byte(landlock.byte()), Some(landlock));
        }
        assert_eq!(Landlock::of_byte(0), None);
    }
}
