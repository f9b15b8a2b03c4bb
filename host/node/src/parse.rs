//! Pure: reads the texts of `/proc` and `/sys`.

use std::collections::BTreeSet;

use crate::facts::{Amount, Fact};

/// The soft limit of locked memory in `/proc/self/limits`, which `ulimit -l` prints. Programs that
/// register memory do not raise it to the hard limit.
pub fn memlock(limits: &str) -> Fact<Amount> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    match soft {
        Some("unlimited") => Ok(Amount::Unlimited),
        Some(bytes) => {
            let bytes = bytes.parse().map_err(|_| unreadable("limits"))?;
            Ok(Amount::Bytes(bytes))
        }
        None => Err(unreadable("limits")),
    }
}

/// The number of huge pages of the default size in `/proc/meminfo`. A kernel without them has none.
pub fn huge_pages(meminfo: &str) -> Fact<u64> {
    let mut lines = meminfo.lines();
    let number = lines.find_map(|line| line.strip_prefix("HugePages_Total:"));
    let parsed = number.map_or(Ok(0), |number| number.trim().parse());
    parsed.map_err(|_| unreadable("meminfo"))
}

/// The names of the loaded modules in `/proc/modules`.
pub fn modules(text: &str) -> BTreeSet<String> {
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(ToOwned::to_owned).collect()
}

/// The size of `/dev/shm` in `/proc/self/mounts`, in bytes.
pub fn shared_memory(mounts: &str) -> Fact<u64> {
    let mounts = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    // A later mount covers an earlier one.
    let options = mounts
        .filter_map(|fields| match fields[..] {
            [_, "/dev/shm", _, options, ..] => Some(options),
            _ => None,
        })
        .next_back();
    let options = options.ok_or_else(|| "there is no mount at /dev/shm".to_owned())?;
    let size = options
        .split(',')
        .find_map(|option| option.strip_prefix("size="));
    let size = size.ok_or_else(|| "the mount at /dev/shm has no size".to_owned())?;
    kibibytes(size).ok_or_else(|| unreadable("mounts"))
}

/// The state of a port of an RDMA device: the file contains `4: ACTIVE`.
pub fn port_state(text: &str) -> String {
    let text = text.trim();
    let state = text.split_once(": ").map_or(text, |(_, state)| state);
    state.to_owned()
}

/// A size such as `65536k`, in bytes.
fn kibibytes(size: &str) -> Option<u64> {
    let kibibytes: u64 = size.strip_suffix('k')?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn unreadable(file: &str) -> String {
    format!("{file} of /proc has another form than expected")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_locked_memory_counts() {
        let limits = |soft: &str, hard: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max core file size        0                    unlimited            bytes\n\
                 Max locked memory         {soft}               {hard}               bytes\n"
            )
        };
        assert_eq!(
            memlock(&limits("unlimited", "unlimited")),
            Ok(Amount::Unlimited)
        );
        assert_eq!(
            memlock(&limits("65536", "unlimited")),
            Ok(Amount::Bytes(64 << 10))
        );
        assert!(memlock("").is_err());
        assert!(memlock(&limits("many", "1")).is_err());
    }

    #[test]
    fn the_texts_of_proc_are_read() {
        let meminfo = "MemTotal: 1 kB\nHugePages_Total:     512\nHugePages_Free: 1\n";
        assert_eq!(huge_pages(meminfo), Ok(512));
        assert_eq!(huge_pages("MemTotal: 1 kB\n"), Ok(0));
        assert!(huge_pages("HugePages_Total: many\n").is_err());
        let found = modules("mlx5_ib 1 0 - Live 0x0\nib_core 2 1 mlx5_ib, Live 0x0\n");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["ib_core", "mlx5_ib"]
        );
        assert_eq!(port_state("4: ACTIVE\n"), "ACTIVE");
        assert_eq!(port_state("odd\n"), "odd");
    }

    #[test]
    fn the_last_mount_of_shared_memory_counts() {
        let mounts = "shm /dev/shm tmpfs rw,size=65536k 0 0\n\
                      tmpfs /dev/shm tmpfs rw,relatime,size=1048576k,inode64 0 0\n";
        assert_eq!(shared_memory(mounts), Ok(1 << 30));
        for odd in [
            "",
            "shm /dev/shm tmpfs rw 0 0\n",
            "shm /dev/shm tmpfs size=many 0 0\n",
        ] {
            assert!(shared_memory(odd).is_err(), "{odd}");
        }
    }
}
