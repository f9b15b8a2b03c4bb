//! The usage of a process so far, from /proc.

use std::fs;
use std::time::Duration;

use cluster::control_plane::ControlPlane;
use cluster::process::Process;

use super::{LoadError, as_figure};

/// Length of a clock tick of /proc: fixed by the kernel's interface to programs.
const TICK: Duration = Duration::from_millis(10);

/// The usage of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumption {
    /// Resident memory now, in KiB.
    pub resident_kib: u64,
    /// Its part in pages of files, in KiB: the program itself, which all its processes on a node
    /// share.
    pub of_files_kib: u64,
    /// Maximum resident memory so far, in KiB.
    pub peak_kib: u64,
    /// Time on a processor, in user and kernel mode.
    pub cpu: Duration,
}

impl Consumption {
    /// Resident memory now, in MiB.
    pub fn resident_mib(self) -> f64 {
        as_figure(self.resident_kib) / 1024.0
    }

    /// Its part in pages of files, in MiB.
    pub fn of_files_mib(self) -> f64 {
        as_figure(self.of_files_kib) / 1024.0
    }

    /// Maximum resident memory so far, in MiB.
    pub fn peak_mib(self) -> f64 {
        as_figure(self.peak_kib) / 1024.0
    }

    /// Time on a processor that an API server has used so far.
    pub(super) fn of_api_server(plane: &ControlPlane) -> Result<Duration, LoadError> {
        let missing = || LoadError::Missing("kube-apiserver has ended".to_owned());
        Ok(Self::of(plane.api_server().ok_or_else(missing)?)?.cpu)
    }

    /// The usage of a running process.
    pub(super) fn of(process: Process) -> Result<Self, LoadError> {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", process.pid);
            fs::read_to_string(&path)
                .map_err(|error| LoadError::Missing(format!("{path}: {error}")))
        };
        Self::parse(&read("status")?, &read("stat")?)
            .ok_or_else(|| LoadError::Missing(format!("process {} has no figures", process.pid)))
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        // utime and stime are the fourteenth and fifteenth field. The name before them may contain
        // blanks.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u32>().ok();
        Some(Self {
            resident_kib: kib("VmRSS:")?,
            of_files_kib: kib("RssFile:")?,
            peak_kib: kib("VmHWM:")?,
            cpu: TICK * (ticks()? + ticks()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_behind_a_name_with_blanks() {
        let status = "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nRssFile:\t  512 kB\n";
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        let found = Consumption::parse(status, stat).unwrap();
        assert_eq!((found.resident_kib, found.peak_kib), (1024, 2048));
        assert_eq!(found.of_files_kib, 512);
        assert_eq!(found.cpu, Duration::from_secs(2));
    }
}
