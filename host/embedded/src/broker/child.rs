//! What the hidden subcommand `cdr embedded broker` does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::server::Server;
use crate::folder::FolderLock;
use crate::port::{self, PortFile};
use crate::{EmbeddedError, parent};

/// How long children of a parent that was killed may hold the folder.
const TAKEOVER: Duration = Duration::from_secs(5);
/// What the standard library uses for a panic.
const EXIT_PANICKED: i32 = 101;
const STORAGE_FILE: &str = "broker.db";

/// What the child is given.
#[derive(Debug, Clone)]
pub struct BrokerChildArgs {
    /// Folder of its data; made if missing.
    pub data: PathBuf,
    /// Port on 127.0.0.1; 0 is one that the system chooses.
    pub port: u16,
    /// Where to write the port once the broker accepts connections.
    pub port_file: PathBuf,
}

/// Serves until `SIGTERM`, then closes the storage and returns.
///
/// Changes the working directory. Call it outside of any async runtime: it has its own.
///
/// # Errors
/// One sentence on why it could not serve, which is also written beside the port file.
pub fn run(args: BrokerChildArgs) -> Result<(), EmbeddedError> {
    parent::follow()?;
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|source| EmbeddedError::io("find", path, source))
    };
    let port_file = PortFile::new(absolute(&args.port_file)?);
    let data = absolute(&args.data)?;
    serve(&data, args.port, &port_file).inspect_err(|error| port_file.refuse(error))
}

fn serve(data: &Path, port: u16, port_file: &PortFile) -> Result<(), EmbeddedError> {
    let _lock = FolderLock::take(data, TAKEOVER)?;
    port_file.clear()?;
    end_on_panic();
    // Storage is given by URL, in which not every path can be written: so a bare name.
    std::env::set_current_dir(data).map_err(|source| EmbeddedError::io("enter", data, source))?;
    let failed = |detail: String| EmbeddedError::BrokerFailed {
        data: data.to_owned(),
        detail,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| failed(source.to_string()))?;
    runtime.block_on(async {
        let mut terminate =
            signal(SignalKind::terminate()).map_err(|source| failed(source.to_string()))?;
        // Bound before all else: the port is part of what the broker tells of itself.
        let listener = port::bind(port)?;
        let listening = || -> std::io::Result<(TcpListener, u16)> {
            let port = listener.local_addr()?.port();
            listener.set_nonblocking(true)?;
            Ok((TcpListener::from_std(listener)?, port))
        };
        let (listener, port) = listening().map_err(|source| failed(source.to_string()))?;
        let server = Server::open(STORAGE_FILE, port)
            .await
            .map_err(|error| failed(format!("{STORAGE_FILE}: {error}")))?;
        port_file.announce(port)?;
        tracing::info!(
            event = "broker_ready",
            port,
            "the broker serves on 127.0.0.1:{port}"
        );
        let stop = async {
            terminate.recv().await;
        };
        server
            .serve(listener, stop)
            .await
            .map_err(|error| failed(error.to_string()))
    })
}

/// Ends the process when something in it panics, after that was logged.
///
/// Tansu 0.6.0 panics in the task that owns its storage when a producer comes with an
/// epoch that it has not seen, as one does whose records timed out (`lite.rs`, "more or
/// less than one row"). It then goes on accepting connections and answers every request
/// with an error, for ever; a part that is gone is seen, named, and started again.
fn end_on_panic() {
    let log = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        log(info);
        std::process::exit(EXIT_PANICKED);
    }));
}
