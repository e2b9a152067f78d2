//! A file that says where a server listens, for port 0.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The file, there as long as this value lives.
#[derive(Debug)]
pub(crate) struct PortFile(PathBuf);

impl PortFile {
    /// Writes `addr` so that a reader finds either nothing or all of it.
    pub(crate) fn write(path: &Path, addr: SocketAddr) -> io::Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = path.with_file_name(name);
        let mut file = fs::File::create(&new)?;
        write!(file, "{addr}")?;
        drop(file);
        fs::rename(&new, path).inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
        Ok(PortFile(path.to_owned()))
    }
}

impl Drop for PortFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
