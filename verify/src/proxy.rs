//! A TCP proxy on loopback that breaks what goes through it.
//!
//! ```text
//!   client ──▶ Proxy ──▶ upstream       Fault::Pass: every byte, both ways, in order
//!          ◀──       ◀──                any other: see there
//! ```
//!
//! A fault holds from the return of [`Proxy::set`] on, for connections that are
//! open as well as for new ones, until the next is set. The address stays the
//! same for the life of the proxy, also while it refuses connections.
//!
//! No connection goes on as if nothing had happened when bytes of it were
//! swallowed: with the end of such a fault it is reset.
//!
//! An upstream that is not there looks different from here than directly: the
//! connection is accepted first and reset then, not refused.

mod connection;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

/// What the proxy does to the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: bytes pass.
    Pass,
    /// New connections are refused, as by a host on which nothing listens. Open
    /// ones are reset.
    Refuse,
    /// Every byte comes so much later, in each direction: a round trip takes
    /// twice as long. The throughput stays what it was.
    Delay(Duration),
    /// Connections are accepted and stay open; what is sent is swallowed, and
    /// nothing comes back.
    Hang,
    /// Connections are reset, open ones at once and new ones after they were
    /// accepted.
    Cut,
    /// What the client sends goes upstream, which acts on it; the connection is
    /// reset when the answer comes, before a byte of it reaches the client.
    CutAfterWrite,
    /// So many more bytes of the client go upstream on each connection; then it
    /// is reset.
    CutMidRequest(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Pass => f.write_str("pass"),
            Fault::Refuse => f.write_str("refuse"),
            Fault::Delay(each_way) => write!(f, "delay {}ms", each_way.as_millis()),
            Fault::Hang => f.write_str("hang"),
            Fault::Cut => f.write_str("cut"),
            Fault::CutAfterWrite => f.write_str("cut-after-write"),
            Fault::CutMidRequest(bytes) => write!(f, "cut-mid-request {bytes}B"),
        }
    }
}

/// What the proxy has done since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections reset by a fault.
    pub reset: u64,
    /// Bytes that were taken from either side and went nowhere.
    pub swallowed_bytes: u64,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            reset: self.reset + other.reset,
            swallowed_bytes: self.swallowed_bytes + other.swallowed_bytes,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicU64,
    reset: AtomicU64,
    swallowed_bytes: AtomicU64,
}

struct Order {
    fault: Fault,
    done: oneshot::Sender<io::Result<()>>,
}

/// A running proxy. Dropping it closes its connections and frees the port.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    orders: mpsc::UnboundedSender<Order>,
    counters: Arc<Counters>,
    accepting: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    /// Starts a proxy to `upstream` on a port of loopback that the system
    /// chooses. The upstream need not be there yet. Call it in a runtime.
    ///
    /// # Errors
    /// No port could be had.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::start_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), upstream)
    }

    /// Starts a proxy to `upstream` on `addr`.
    ///
    /// # Errors
    /// The address can't be had.
    pub fn start_on(addr: SocketAddr, upstream: SocketAddr) -> io::Result<Self> {
        let gate = Gate::new(addr)?;
        let addr = gate.addr;
        let counters = Arc::new(Counters::default());
        let (orders, inbox) = mpsc::unbounded_channel();
        let accepting = Acceptor {
            gate,
            upstream,
            faults: watch::Sender::new(Fault::Pass),
            counters: Arc::clone(&counters),
            open: JoinSet::new(),
        };
        let accepting = tokio::spawn(accepting.run(inbox)).abort_handle();
        Ok(Self {
            addr,
            orders,
            counters,
            accepting,
        })
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets a fault in place of the one before. When this returns it holds for
    /// new connections, and the open ones have been told.
    ///
    /// # Errors
    /// After [`Fault::Refuse`], listening again may fail.
    pub async fn set(&self, fault: Fault) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        let gone = || io::Error::other("the proxy has ended");
        self.orders
            .send(Order { fault, done })
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            accepted: self.counters.accepted.load(Ordering::Relaxed),
            reset: self.counters.reset.load(Ordering::Relaxed),
            swallowed_bytes: self.counters.swallowed_bytes.load(Ordering::Relaxed),
        }
    }
}

/// The port: held all the time, listened on or not.
struct Gate {
    addr: SocketAddr,
    /// Bound and never listened on, so that the port stays ours while
    /// connections are refused.
    _holder: TcpSocket,
    listener: Option<TcpListener>,
}

impl Gate {
    fn new(addr: SocketAddr) -> io::Result<Self> {
        let holder = bound(addr)?;
        let addr = holder.local_addr()?;
        Ok(Self {
            addr,
            _holder: holder,
            listener: Some(bound(addr)?.listen(BACKLOG)?),
        })
    }

    fn set_open(&mut self, open: bool) -> io::Result<()> {
        match (open, &self.listener) {
            (true, None) => self.listener = Some(bound(self.addr)?.listen(BACKLOG)?),
            (false, Some(_)) => self.listener = None,
            _ => {}
        }
        Ok(())
    }
}

const BACKLOG: u32 = 1024;

/// Several sockets may be bound to the port as long as only one listens.
fn bound(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

struct Acceptor {
    gate: Gate,
    upstream: SocketAddr,
    faults: watch::Sender<Fault>,
    counters: Arc<Counters>,
    open: JoinSet<()>,
}

impl Acceptor {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                biased;
                order = inbox.recv() => match order {
                    Some(order) => {
                        let set = self.gate.set_open(order.fault != Fault::Refuse);
                        self.faults.send_replace(order.fault);
                        // Whoever asked may have stopped waiting.
                        let _ = order.done.send(set);
                    }
                    None => return,
                },
                accepted = accept(self.gate.listener.as_ref()) => match accepted {
                    Ok(client) => {
                        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                        self.open.spawn(connection::serve(
                            client,
                            self.upstream,
                            self.faults.subscribe(),
                            Arc::clone(&self.counters),
                        ));
                    }
                    // Out of descriptors, for example: others may be freed.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
                Some(_) = self.open.join_next() => {}
            }
        }
    }
}

/// The next connection; none while nothing listens.
async fn accept(listener: Option<&TcpListener>) -> io::Result<tokio::net::TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}
