//! Ports on loopback, and how a child tells its parent which one it serves on.
//!
//! A child that is ready writes its port to the port file, atomically. One
//! that fails writes its reason beside it, so that the parent can say it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use crate::{EmbeddedError, folder};

/// Listens on loopback; port 0 is one that the system chooses.
pub(crate) fn bind(port: u16) -> Result<TcpListener, EmbeddedError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => EmbeddedError::PortInUse { address },
        _ => EmbeddedError::Port { address, source },
    })
}

/// Refuses a port that something listens on. Port 0 is always free.
pub(crate) fn check_free(port: u16) -> Result<(), EmbeddedError> {
    bind(port).map(drop)
}

/// Where a child says that it is ready, or why it is not.
#[derive(Debug, Clone)]
pub(crate) struct PortFile {
    path: PathBuf,
}

impl PortFile {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn reason_path(&self) -> PathBuf {
        self.path.with_added_extension("error")
    }

    /// Forgets what an earlier child said.
    pub(crate) fn clear(&self) -> Result<(), EmbeddedError> {
        folder::remove(&self.path)?;
        folder::remove(&self.reason_path())
    }

    pub(crate) fn announce(&self, port: u16) -> Result<(), EmbeddedError> {
        folder::write_atomically(&self.path, format!("{port}\n").as_bytes())
    }

    /// Says why there will be no port. Without effect where that can't be written.
    pub(crate) fn refuse(&self, reason: &EmbeddedError) {
        let _ = folder::write_atomically(&self.reason_path(), reason.to_string().as_bytes());
    }

    pub(crate) fn port(&self) -> Option<u16> {
        std::fs::read_to_string(&self.path)
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    pub(crate) fn reason(&self) -> Option<String> {
        std::fs::read_to_string(self.reason_path()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_listened_on_is_refused_with_its_address() {
        let holder = bind(0).unwrap();
        let address = holder.local_addr().unwrap();
        let error = check_free(address.port()).unwrap_err();
        assert_eq!(error.class(), "port_in_use");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    #[test]
    fn a_port_file_says_one_thing_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = PortFile::new(folder.path().join("broker.port"));
        assert_eq!((file.port(), file.reason()), (None, None));
        file.announce(4242).unwrap();
        assert_eq!(file.port(), Some(4242));
        file.clear().unwrap();
        file.refuse(&EmbeddedError::ParentGone { parent: 7 });
        assert_eq!(file.port(), None);
        assert!(file.reason().unwrap().contains("pid 7"));
    }
}
