//! IPv4 addresses, strictly as a dotted quad.

use std::net::Ipv4Addr;

/// Four decimal octets without leading zeros (they are octal to some readers,
/// RFC 6943 section 3.1.1), and nothing around them: no blank, port, prefix
/// length or bracket. Every address is taken, whatever its range.
pub fn parse(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_quads_only() {
        for text in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            assert_eq!(
                parse(text).map(|address| address.to_string()),
                Some(text.into())
            );
        }
        for text in [
            "",
            " 192.0.2.1",
            "192.0.2.1 ",
            "192.0.2.1\n",
            "192.0.2.1\0",
            "192.0.2",
            "192.0.2.1.",
            ".192.0.2.1",
            "192..2.1",
            "1.2.3.4.5",
            "0127.0.0.1",
            "192.0.2.01",
            "192.0.2.00",
            "192.0.2.001",
            "192.0.2.256",
            "192.0.2.1000",
            "192.0.2.+1",
            "192.0.2.-1",
            "192.0.2.0x1",
            "0xC000020A",
            "3221225994",
            "192.0.2.1:80",
            "192.0.2.1/32",
            "[192.0.2.1]",
            "192.0.2.1%eth0",
            "192.0.2.1,198.51.100.7",
            "2001:db8::1",
            "::ffff:192.0.2.1",
            "localhost",
            "192,0,2,1",
            "１９２.0.2.1",
            "192.0.2.١",
            "192。0。2。1",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
