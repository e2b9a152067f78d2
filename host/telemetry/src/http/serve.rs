//! Listening, accepting, and the end of it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::HttpError;
use super::connection::{self, Shared};
use super::request::{Outside, Silent, Unrouted};
use super::tls::Tls;
use crate::port_file::PortFile;
use crate::shutdown::Shutdown;

/// How to serve; [`serve`] takes the defaults.
#[derive(Clone)]
pub struct ServeOptions {
    /// Time for the head of a request to arrive, counted from the connection's
    /// start or from the answer before; so also how long one may be idle.
    pub head_timeout: Duration,
    /// Time in which a client must take some of what is written to it.
    pub write_timeout: Duration,
    /// Bytes of a request's head; more is answered 431.
    pub max_head_bytes: usize,
    /// Connections at a time; one more is answered 503 and closed.
    pub max_connections: usize,
    /// Requests at a time on an HTTP/2 connection.
    pub max_streams: u32,
    /// How long connections may go on after the shutdown was requested; then
    /// they are cut.
    pub grace: Duration,
    /// A file to hold the bound address (`127.0.0.1:40123`) while the server
    /// listens. It appears whole, and goes when the server ends.
    pub port_file: Option<PathBuf>,
    /// Certificate and key; none: without TLS.
    pub tls: Option<Tls>,
    /// Who learns of what happens outside the router.
    pub outside: Arc<dyn Outside>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            // Above the idle time after which common clients let go of a
            // connection would be safest (90 s), but slow heads cost memory.
            head_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(10),
            max_head_bytes: 16 << 10,
            max_connections: 16_384,
            max_streams: 128,
            grace: Duration::from_secs(10),
            port_file: None,
            tls: None,
            outside: Arc::new(Silent),
        }
    }
}

/// Listens on `addr` and serves `router` until `shutdown` is requested, with the
/// default [`ServeOptions`]. When this returns, connections are accepted.
pub async fn serve(
    addr: SocketAddr,
    router: Router,
    shutdown: Shutdown,
) -> Result<Server, HttpError> {
    ServeOptions::default().serve(addr, router, shutdown).await
}

impl ServeOptions {
    /// Listens on `addr` and serves `router` (HTTP/1.1 and HTTP/2) until `shutdown`
    /// is requested. When this returns, connections are accepted. A request goes
    /// on to its end in the router even when its client is gone.
    pub async fn serve(
        self,
        addr: SocketAddr,
        router: Router,
        shutdown: Shutdown,
    ) -> Result<Server, HttpError> {
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => HttpError::InUse { addr },
                _ => HttpError::Bind { addr, source },
            })?;
        let bound = listener
            .local_addr()
            .map_err(|source| HttpError::Bind { addr, source })?;
        let port_file = match &self.port_file {
            None => None,
            Some(path) => {
                Some(
                    PortFile::write(path, bound).map_err(|source| HttpError::PortFile {
                        path: path.clone(),
                        source,
                    })?,
                )
            }
        };
        let shared = Arc::new(Shared {
            router,
            options: self,
            shutdown,
            cut: CancellationToken::new(),
        });
        let task = tokio::spawn(async move {
            let _port_file = port_file;
            run(listener, shared).await;
        });
        Ok(Server { addr: bound, task })
    }
}

/// A server that runs. Dropping it does not stop it; its [`Shutdown`] does.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// The address it listens on, with the port that the system chose for 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits until the server has stopped: requests that had begun are answered
    /// or cut after the grace time.
    pub async fn stopped(self) {
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            tracing::error!(
                event = "http_server_panicked",
                "the server at {} panicked",
                self.addr
            );
        }
    }
}

async fn run(listener: TcpListener, shared: Arc<Shared>) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.shutdown.requested() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _peer)) if connections.len() >= shared.options.max_connections => {
                refuse(&stream, &shared);
            }
            Ok((stream, _peer)) => {
                let one = connection::serve(shared.clone(), stream);
                let counted = Counted::new(shared.options.outside.clone());
                connections.spawn(async move {
                    let _counted = counted;
                    one.await;
                });
            }
            // The client's own doing.
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::error!(
                    event = "accept_failed",
                    "can't accept connections: {error}; is the limit of open files (`ulimit -n`) reached?"
                );
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    let grace = shared.options.grace;
    if tokio::time::timeout(grace, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            event = "connections_cut",
            connections = connections.len(),
            "connections were still busy {grace:.1?} after the shutdown was requested and are cut",
        );
        shared.cut.cancel();
        connections.wait().await;
    }
}

/// Tells of a connection when it comes and when it goes.
struct Counted(Arc<dyn Outside>);

impl Counted {
    fn new(outside: Arc<dyn Outside>) -> Self {
        outside.connected();
        Counted(outside)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

/// Says so without waiting: a client that is not wanted gets no task. With TLS
/// there is no saying anything before a handshake.
fn refuse(stream: &TcpStream, shared: &Shared) {
    shared
        .options
        .outside
        .answered(Unrouted::TooManyConnections);
    if shared.options.tls.is_none() {
        let _ = stream.try_write(&Unrouted::TooManyConnections.on_the_wire());
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
