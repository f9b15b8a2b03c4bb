//! Pure: the machine's routes, as the kernel shows them in `/proc/net/route`.

use std::{fmt, net::Ipv4Addr};

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    address: u32,
    mask: u32,
}

/// A route of the machine's main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    /// Its destinations.
    pub(super) range: Range,
    /// Its device. A route that rejects packets has none.
    pub(super) device: Option<String>,
}

impl Range {
    /// Reads `address/bits`.
    pub(super) fn parse(range: &str) -> Option<Self> {
        let (address, bits) = range.split_once('/')?;
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
        Some(Self {
            address: address.parse::<Ipv4Addr>().ok()?.to_bits(),
            mask: u32::MAX.checked_shl(32 - bits).unwrap_or(0),
        })
    }

    /// Whether the two share an address.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let mask = self.mask & other.mask;
        self.address & mask == other.address & mask
    }

    /// Whether it is the default route, or one of the two halves with which a tunnel overrides it.
    /// The cluster's own routes are narrower and win.
    fn is_everything(self) -> bool {
        self.mask.count_ones() <= 1
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv4Addr::from_bits(self.address);
        write!(f, "{address}/{}", self.mask.count_ones())
    }
}

/// The routes of the table, without its heading.
pub(super) fn parse(table: &str) -> Vec<Route> {
    table.lines().filter_map(route).collect()
}

/// The first route that conflicts with one of `ours`. The default route, routes over the cluster's
/// own `bridge`, and routes that reject packets do not conflict.
pub(super) fn overlap<'a>(
    routes: &'a [Route],
    bridge: &str,
    ours: &[&'static str],
) -> Option<(&'a Route, &'static str)> {
    let foreign = routes.iter().filter(|route| {
        let device = route.device.as_deref();
        device.is_some_and(|device| device != bridge) && !route.range.is_everything()
    });
    foreign.into_iter().find_map(|route| {
        let mut ours = ours.iter();
        let overlapped =
            ours.find(|ours| Range::parse(ours).is_some_and(|range| range.overlaps(route.range)))?;
        Some((route, *overlapped))
    })
}

/// Device, address, gateway, flags, three numbers, mask. Addresses are in the network's order.
fn route(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [device, address, _, _, _, _, _, mask, ..] = words[..] else {
        return None;
    };
    let number = |word| u32::from_str_radix(word, 16).ok().map(u32::from_be);
    Some(Route {
        range: Range {
            address: number(address)?,
            mask: number(mask)?,
        },
        device: (device != "*").then(|| device.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str =
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
    const OURS: [&str; 2] = ["10.99.0.0/24", "10.96.0.0/16"];

    fn routes(lines: &str) -> Vec<Route> {
        parse(&format!("{HEADING}{lines}"))
    }

    fn range(range: &str) -> Range {
        Range::parse(range).unwrap()
    }

    #[test]
    fn the_kernels_table_is_understood() {
        let found = routes(
            "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
             *\t0000600A\t00000000\t0201\t0\t0\t4096\t0000FFFF\t0\t0\t0\n\
             ipu-cluster0\t0000630A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
        );
        let shown: Vec<_> = found
            .iter()
            .map(|route| (route.range.to_string(), route.device.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("0.0.0.0/0".to_owned(), Some("eth0")),
                ("10.96.0.0/16".to_owned(), None),
                ("10.99.0.0/24".to_owned(), Some("ipu-cluster0")),
            ]
        );
        assert!(overlap(&found, "ipu-cluster0", &OURS).is_none());
    }

    #[test]
    fn ranges_overlap_where_one_holds_the_other() {
        assert!(range("10.0.0.0/8").overlaps(range("10.96.0.0/16")));
        assert!(range("10.99.0.7/32").overlaps(range("10.99.0.0/24")));
        assert!(range("0.0.0.0/0").overlaps(range("10.99.0.0/24")));
        assert!(!range("10.97.0.0/16").overlaps(range("10.96.0.0/16")));
        assert_eq!(Range::parse("garbage"), None);
        assert_eq!(Range::parse("10.0.0.0/99"), None);
    }

    #[test]
    fn only_routes_of_others_are_in_the_way() {
        let tunnel = "tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";
        let found = routes(tunnel);
        let (route, ours) = overlap(&found, "ipu-cluster0", &OURS).unwrap();
        assert_eq!(route.range.to_string(), "10.0.0.0/8");
        assert_eq!(ours, "10.99.0.0/24");
        let half = routes("tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n");
        assert_eq!(half[0].range.to_string(), "0.0.0.0/1");
        assert!(overlap(&half, "ipu-cluster0", &OURS).is_none());
    }
}
