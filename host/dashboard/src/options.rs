//! The options of `kubectl ipu dashboard`.

use std::net::{AddrParseError, IpAddr, Ipv4Addr};

use clap::Args;

/// Address of the page.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DashboardOptions {
    /// Port on this machine; 0 is any free port.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Address of this machine that only this machine reaches, such as 127.0.0.1 or ::1.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = loopback)]
    pub address: IpAddr,
}

/// An address on which the page is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is no address.
    #[error("give an IP address, such as 127.0.0.1 or ::1")]
    Invalid(#[source] AddrParseError),
    /// Other machines can reach it.
    #[error(
        "other machines reach it, and would have your rights: give a loopback address, such as 127.0.0.1, and reach it from \
         another machine with ssh -L"
    )]
    NotLoopback,
}

fn loopback(text: &str) -> Result<IpAddr, AddressError> {
    let address: IpAddr = text.parse().map_err(AddressError::Invalid)?;
    if address.is_loopback() {
        Ok(address)
    } else {
        Err(AddressError::NotLoopback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_accepted() {
        for (text, expected) in [
            ("127.0.0.1", true),
            ("127.8.9.1", true),
            ("::1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("::ffff:127.0.0.1", false),
            ("192.0.2.1", false),
            ("localhost", false),
        ] {
            assert_eq!(loopback(text).is_ok(), expected, "{text}");
        }
    }
}
