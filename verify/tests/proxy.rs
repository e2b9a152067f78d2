//! Each fault of the proxy as a client and a server see it.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cdr_verify::proxy::{Fault, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Longer than anything takes here, loaded machines included.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long silence is listened to before it counts as such.
const SILENCE: Duration = Duration::from_millis(300);

/// A server that answers each byte with the same in upper case, and tells what
/// it got on each connection, the end (`None`) included.
struct Upstream {
    addr: SocketAddr,
    got: mpsc::UnboundedReceiver<Option<Vec<u8>>>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (tell, got) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let tell = tell.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    loop {
                        match stream.read(&mut buffer).await {
                            Ok(0) | Err(_) => {
                                let _ = tell.send(None);
                                return;
                            }
                            Ok(bytes) => {
                                let _ = tell.send(Some(buffer[..bytes].to_vec()));
                                let answer = buffer[..bytes].to_ascii_uppercase();
                                let _ = stream.write_all(&answer).await;
                            }
                        }
                    }
                });
            }
        });
        Self { addr, got }
    }

    /// What comes next on any connection.
    async fn next(&mut self) -> Option<Vec<u8>> {
        within(self.got.recv()).await.unwrap()
    }

    /// Whether nothing came so far.
    fn is_silent(&mut self) -> bool {
        self.got.try_recv().is_err()
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("in time")
}

async fn started() -> (Upstream, Proxy) {
    let upstream = Upstream::start().await;
    let proxy = Proxy::start(upstream.addr).unwrap();
    (upstream, proxy)
}

async fn connected(proxy: &Proxy) -> TcpStream {
    within(TcpStream::connect(proxy.addr())).await.unwrap()
}

async fn echoed(client: &mut TcpStream, text: &str) -> String {
    within(client.write_all(text.as_bytes())).await.unwrap();
    let mut answer = vec![0; text.len()];
    within(client.read_exact(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// How a connection ends for the client: with a reset.
async fn expect_reset(client: &mut TcpStream) {
    let mut buffer = [0; 16];
    let read = within(client.read(&mut buffer)).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// Whether nothing comes and the connection stays.
async fn is_silent(client: &mut TcpStream) -> bool {
    let mut buffer = [0; 16];
    tokio::time::timeout(SILENCE, client.read(&mut buffer))
        .await
        .is_err()
}

#[tokio::test]
async fn bytes_pass_both_ways_and_so_do_ends() {
    let (mut upstream, proxy) = started().await;
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, "hello").await, "HELLO");
    assert_eq!(upstream.next().await.unwrap(), b"hello");
    within(client.shutdown()).await.unwrap();
    assert_eq!(upstream.next().await, None, "the client's end is told");
    let mut rest = Vec::new();
    within(client.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"", "the server's end is told, not a reset");
    assert_eq!(proxy.counts().accepted, 1);
    assert_eq!(proxy.counts().reset, 0);
}

#[tokio::test]
async fn much_passes_unchanged() {
    let (_upstream, proxy) = started().await;
    let mut client = connected(&proxy).await;
    let sent: Vec<u8> = (0..4_000_000_u32)
        .map(|i| b"abcdefghijklmnopqrstuvwxyz"[(i % 26) as usize])
        .collect();
    let (mut read, mut write) = client.split();
    let mut got = vec![0; sent.len()];
    let (wrote, filled) =
        within(async { tokio::join!(write.write_all(&sent), read.read_exact(&mut got)) }).await;
    wrote.unwrap();
    filled.unwrap();
    assert!(got == sent.to_ascii_uppercase());
}

#[tokio::test]
async fn refuse_resets_what_is_open_and_keeps_the_port() {
    let (_upstream, proxy) = started().await;
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, "a").await, "A");
    proxy.set(Fault::Refuse).await.unwrap();
    expect_reset(&mut client).await;
    let refused = within(TcpStream::connect(proxy.addr())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // Nobody else gets the port meanwhile.
    assert!(
        TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            != proxy.addr()
    );
    proxy.set(Fault::Pass).await.unwrap();
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, "b").await, "B");
}

#[tokio::test]
async fn cut_resets_open_and_new_connections() {
    let (mut upstream, proxy) = started().await;
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, "a").await, "A");
    upstream.next().await;
    proxy.set(Fault::Cut).await.unwrap();
    expect_reset(&mut client).await;
    assert_eq!(upstream.next().await, None, "the server sees it too");
    let mut client = connected(&proxy).await;
    expect_reset(&mut client).await;
    assert!(upstream.is_silent(), "a new one does not reach it");
    assert_eq!(proxy.counts().reset, 2);
    proxy.set(Fault::Pass).await.unwrap();
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, "b").await, "B");
}

#[tokio::test]
async fn hang_swallows_keeps_open_and_resets_in_the_end() {
    let (mut upstream, proxy) = started().await;
    let mut open = connected(&proxy).await;
    let mut idle = connected(&proxy).await;
    for client in [&mut open, &mut idle] {
        assert_eq!(echoed(client, "a").await, "A");
        upstream.next().await;
    }
    proxy.set(Fault::Hang).await.unwrap();
    let mut new = connected(&proxy).await;
    let mut new_idle = connected(&proxy).await;
    for client in [&mut open, &mut new] {
        within(client.write_all(b"lost")).await.unwrap();
        assert!(is_silent(client).await);
    }
    assert!(upstream.is_silent(), "nothing reaches the server");
    assert_eq!(proxy.counts().swallowed_bytes, 8);
    proxy.set(Fault::Pass).await.unwrap();
    // A stream with a hole in it must not go on; one without does.
    for client in [&mut open, &mut new] {
        expect_reset(client).await;
    }
    for client in [&mut idle, &mut new_idle] {
        assert_eq!(echoed(client, "b").await, "B");
    }
}

#[tokio::test]
async fn hang_holds_back_an_answer_that_was_on_its_way() {
    let (mut upstream, proxy) = started().await;
    let mut client = connected(&proxy).await;
    proxy
        .set(Fault::Delay(Duration::from_secs(3600)))
        .await
        .unwrap();
    within(client.write_all(b"a")).await.unwrap();
    proxy.set(Fault::Hang).await.unwrap();
    assert!(is_silent(&mut client).await);
    assert!(upstream.is_silent());
}

#[tokio::test]
async fn delay_holds_each_direction_and_ends_with_the_fault() {
    let (_upstream, proxy) = started().await;
    let each_way = Duration::from_millis(150);
    let mut client = connected(&proxy).await;
    proxy.set(Fault::Delay(each_way)).await.unwrap();
    let asked = Instant::now();
    assert_eq!(echoed(&mut client, "a").await, "A");
    assert!(asked.elapsed() >= 2 * each_way, "{:?}", asked.elapsed());

    // What waits is sent at once when the delay is over, in order.
    proxy
        .set(Fault::Delay(Duration::from_secs(3600)))
        .await
        .unwrap();
    within(client.write_all(b"one ")).await.unwrap();
    assert!(is_silent(&mut client).await);
    within(client.write_all(b"two")).await.unwrap();
    proxy.set(Fault::Pass).await.unwrap();
    let mut answer = [0; 7];
    within(client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"ONE TWO");
}

#[tokio::test]
async fn cut_after_write_lets_the_server_act_and_the_client_never_know() {
    let (mut upstream, proxy) = started().await;
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, "a").await, "A");
    upstream.next().await;
    proxy.set(Fault::CutAfterWrite).await.unwrap();
    for mut client in [client, connected(&proxy).await] {
        within(client.write_all(b"acted on")).await.unwrap();
        assert_eq!(upstream.next().await.unwrap(), b"acted on");
        expect_reset(&mut client).await;
        assert_eq!(upstream.next().await, None);
    }
}

#[tokio::test]
async fn cut_mid_request_lets_so_many_bytes_through() {
    let (mut upstream, proxy) = started().await;
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, "before").await, "BEFORE");
    upstream.next().await;
    proxy.set(Fault::CutMidRequest(5)).await.unwrap();
    for mut client in [client, connected(&proxy).await] {
        within(client.write_all(b"a request")).await.unwrap();
        let mut got = Vec::new();
        while let Some(more) = upstream.next().await {
            got.extend(more);
        }
        assert_eq!(got, b"a req", "and no more, on this connection");
        let mut rest = Vec::new();
        let ended = within(client.read_to_end(&mut rest)).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn a_cut_reaches_a_connection_that_is_stuck() {
    // A server that accepts and never reads: the buffers fill, all waits.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    let mut client = connected(&proxy).await;
    let (_held, _) = within(listener.accept()).await.unwrap();
    let chunk = vec![b'x'; 1 << 20];
    while tokio::time::timeout(SILENCE, client.write_all(&chunk))
        .await
        .is_ok()
    {}
    proxy.set(Fault::Cut).await.unwrap();
    let mut buffer = [0; 16];
    assert!(within(client.read(&mut buffer)).await.is_err());
}

#[tokio::test]
async fn an_upstream_that_is_away_resets_and_may_come_later() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let proxy = Proxy::start(addr).unwrap();
    let mut client = connected(&proxy).await;
    expect_reset(&mut client).await;
    let listener = TcpListener::bind(addr).await.unwrap();
    let _client = connected(&proxy).await;
    within(listener.accept()).await.unwrap();
}

#[tokio::test]
async fn dropping_the_proxy_ends_its_connections_and_frees_the_port() {
    let (_upstream, proxy) = started().await;
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, "a").await, "A");
    let addr = proxy.addr();
    drop(proxy);
    let mut buffer = [0; 16];
    let read = within(client.read(&mut buffer)).await;
    assert!(matches!(read, Ok(0) | Err(_)));
    within(async {
        while TcpListener::bind(addr).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
