//! One connection through the proxy, from both sides.
//!
//! Each direction is a reader, a queue and a writer. The reader decides what
//! becomes of the bytes by the fault that holds when they come; the queue holds
//! them for as long as they are delayed; the writer sends them. The first of the
//! four that finds a reason to reset ends all of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Counters, Fault};

const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks that are on their way in one direction; more wait in the sockets.
const QUEUE: usize = 256;

/// Why a connection is over before both sides have said so.
enum End {
    /// A fault resets it.
    Reset,
    /// A side has broken it; so the other is told in the same way.
    Broken,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Broken
    }
}

/// What goes through the queue of a direction.
enum Item {
    Bytes(Instant, Vec<u8>),
    /// The sender has closed its half.
    Eof(Instant),
    /// Bytes after which the connection is reset.
    Last(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

pub(super) async fn serve(
    mut client: TcpStream,
    upstream: SocketAddr,
    mut faults: watch::Receiver<Fault>,
    counters: Arc<Counters>,
) {
    let lossy = AtomicBool::new(false);
    let shared = Shared {
        counters: &counters,
        lossy: &lossy,
    };
    let reset = match shared.connect(&mut client, upstream, &mut faults).await {
        Ok(Some(mut server)) => {
            let ended = pump(&mut client, &mut server, &faults, &shared).await;
            if ended.is_err() {
                reset_on_drop(&server);
            }
            ended
        }
        Ok(None) => Ok(()),
        Err(end) => Err(end),
    };
    if let Err(end) = reset {
        if matches!(end, End::Reset) {
            counters.reset.fetch_add(1, Ordering::Relaxed);
        }
        reset_on_drop(&client);
    }
}

/// A reset in place of an orderly end, once the stream is dropped.
fn reset_on_drop(stream: &TcpStream) {
    // Where that fails the stream is gone already.
    let _ = stream.set_zero_linger();
}

struct Shared<'a> {
    counters: &'a Counters,
    /// Bytes of this connection went nowhere: it can't go on after the fault.
    lossy: &'a AtomicBool,
}

impl Shared<'_> {
    fn swallow(&self, bytes: usize) {
        self.lossy.store(true, Ordering::Relaxed);
        self.counters
            .swallowed_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What holds now, unless it ends the connection.
    fn fault(&self, faults: &mut watch::Receiver<Fault>) -> Result<Fault, End> {
        let fault = *faults.borrow_and_update();
        let lossy = self.lossy.load(Ordering::Relaxed);
        match fault {
            Fault::Cut | Fault::Refuse => Err(End::Reset),
            Fault::Hang => Ok(fault),
            _ if lossy => Err(End::Reset),
            _ => Ok(fault),
        }
    }

    /// Connects upstream, once no fault forbids it; none if the client went away
    /// before.
    async fn connect(
        &self,
        client: &mut TcpStream,
        upstream: SocketAddr,
        faults: &mut watch::Receiver<Fault>,
    ) -> Result<Option<TcpStream>, End> {
        let mut buffer = vec![0; CHUNK_BYTES];
        while self.fault(faults)? == Fault::Hang {
            tokio::select! {
                changed = faults.changed() => changed.map_err(|_| End::Reset)?,
                read = client.read(&mut buffer) => match read? {
                    0 => return Ok(None),
                    bytes => self.swallow(bytes),
                }
            }
        }
        // On loopback this takes no time, or fails.
        let server = TcpStream::connect(upstream).await?;
        for stream in [&*client, &server] {
            stream.set_nodelay(true)?;
        }
        Ok(Some(server))
    }

    /// Waits for a fault that ends the connection, whatever the four are at.
    async fn ended_by_fault(&self, mut faults: watch::Receiver<Fault>) -> End {
        loop {
            if let Err(end) = self.fault(&mut faults) {
                return end;
            }
            if faults.changed().await.is_err() {
                return End::Reset;
            }
        }
    }

    async fn read(
        &self,
        direction: Direction,
        mut from: ReadHalf<'_>,
        to: mpsc::Sender<Item>,
        mut faults: watch::Receiver<Fault>,
    ) -> Result<(), End> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut held = Fault::Pass;
        // Bytes since that fault was set.
        let mut passed = 0;
        loop {
            let bytes = from.read(&mut buffer).await?;
            let fault = self.fault(&mut faults)?;
            if fault != held {
                (held, passed) = (fault, 0);
            }
            let due = match fault {
                Fault::Delay(by) => Instant::now() + by,
                _ => Instant::now(),
            };
            let item = match (fault, direction) {
                // The other side must not learn of it.
                (Fault::Hang, _) if bytes == 0 => {
                    let _ = faults.changed().await;
                    return Err(End::Reset);
                }
                (Fault::Hang, _) => {
                    self.swallow(bytes);
                    continue;
                }
                (Fault::CutAfterWrite, Direction::Down) => {
                    self.swallow(bytes);
                    return Err(End::Reset);
                }
                (Fault::CutMidRequest(limit), Direction::Up) if passed + bytes >= limit => {
                    let kept = limit - passed;
                    self.swallow(bytes - kept);
                    Item::Last(buffer[..kept].to_vec())
                }
                _ if bytes == 0 => Item::Eof(due),
                _ => Item::Bytes(due, buffer[..bytes].to_vec()),
            };
            passed += bytes;
            let is_last = !matches!(item, Item::Bytes(..));
            // Without a writer there is a reason already.
            if to.send(item).await.is_err() || is_last {
                return Ok(());
            }
        }
    }

    async fn write(
        &self,
        direction: Direction,
        mut to: WriteHalf<'_>,
        mut items: mpsc::Receiver<Item>,
        mut faults: watch::Receiver<Fault>,
    ) -> Result<(), End> {
        while let Some(item) = items.recv().await {
            match item {
                Item::Bytes(due, bytes) => match (self.due(due, &mut faults).await?, direction) {
                    (Fault::Hang, _) => self.swallow(bytes.len()),
                    (Fault::CutAfterWrite, Direction::Down) => {
                        self.swallow(bytes.len());
                        return Err(End::Reset);
                    }
                    _ => to.write_all(&bytes).await?,
                },
                Item::Eof(due) => {
                    if self.due(due, &mut faults).await? == Fault::Hang {
                        let _ = faults.changed().await;
                        return Err(End::Reset);
                    }
                    to.shutdown().await?;
                    return Ok(());
                }
                Item::Last(bytes) => {
                    to.write_all(&bytes).await?;
                    return Err(End::Reset);
                }
            }
        }
        Ok(())
    }

    /// Waits until bytes are due, for no longer than the delay holds, and says
    /// what holds then.
    async fn due(&self, due: Instant, faults: &mut watch::Receiver<Fault>) -> Result<Fault, End> {
        loop {
            let fault = self.fault(faults)?;
            if !matches!(fault, Fault::Delay(_)) || due <= Instant::now() {
                return Ok(fault);
            }
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                changed = faults.changed() => changed.map_err(|_| End::Reset)?,
            }
        }
    }
}

/// Moves bytes until both sides are done or a fault ends it.
async fn pump(
    client: &mut TcpStream,
    server: &mut TcpStream,
    faults: &watch::Receiver<Fault>,
    shared: &Shared<'_>,
) -> Result<(), End> {
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let (up, up_items) = mpsc::channel(QUEUE);
    let (down, down_items) = mpsc::channel(QUEUE);
    let moving = async {
        tokio::try_join!(
            shared.read(Direction::Up, client_read, up, faults.clone()),
            shared.write(Direction::Up, server_write, up_items, faults.clone()),
            shared.read(Direction::Down, server_read, down, faults.clone()),
            shared.write(Direction::Down, client_write, down_items, faults.clone()),
        )
    };
    tokio::select! {
        biased;
        end = shared.ended_by_fault(faults.clone()) => Err(end),
        moved = moving => moved.map(|_| ()),
    }
}
