//! Ports that a process can have again after its death.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use rand::RngExt;

/// Below the range from which the system takes ports for outgoing connections, so
/// that none of them takes it while its owner is away.
const RANGE: std::ops::Range<u16> = 20_000..32_000;
const TRIES: u32 = 1000;

/// An address on loopback that nothing listens on.
///
/// # Errors
/// None was found.
pub fn free() -> anyhow::Result<SocketAddr> {
    for _ in 0..TRIES {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, rand::rng().random_range(RANGE)));
        if TcpListener::bind(addr).is_ok() {
            return Ok(addr);
        }
    }
    anyhow::bail!(
        "no free port was found from {} to {}",
        RANGE.start,
        RANGE.end
    )
}
