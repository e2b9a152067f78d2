//! Stands between the store and ClickHouse and does to one connection what
//! networks do.

use std::{sync::Arc, time::Duration};

use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// What happens to each connection.
#[derive(Clone)]
pub enum Fault {
    /// Reset, both ways, when so many bytes of the request are through.
    CutRequest(usize),
    /// The request goes through; when its answer comes, the client gets a reset
    /// in its place.
    CutAnswer,
    /// The request goes through; its answer is kept, and the connection stays.
    KeepAnswer,
    /// Says when so many bytes of the request are through, and goes on.
    Report(usize, Arc<Notify>),
}

/// Starts it before the server at `upstream` (`http://host:port`) and gives its
/// URL. It ends with the runtime.
pub async fn start(upstream: &str, fault: Fault) -> String {
    let upstream = upstream.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&upstream).await;
            if let Ok(server) = server {
                tokio::spawn(serve(client, server, fault.clone()));
            }
        }
    });
    url
}

async fn serve(mut client: TcpStream, mut server: TcpStream, fault: Fault) -> std::io::Result<()> {
    let mut passed = 0;
    let (mut asked, mut answered) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let mut read = read?;
                if read == 0 {
                    return Ok(());
                }
                if let Fault::CutRequest(at) = fault {
                    read = read.min(at - passed);
                }
                server.write_all(&asked[..read]).await?;
                let before = passed;
                passed += read;
                match &fault {
                    Fault::CutRequest(at) if passed == *at => return reset(&[&client, &server]),
                    Fault::Report(at, through) if before < *at && passed >= *at => {
                        through.notify_one();
                    }
                    _ => {}
                }
            }
            read = server.read(&mut answered) => {
                let read = read?;
                match fault {
                    Fault::CutAnswer => return reset(&[&client]),
                    // Longer than any client waits.
                    Fault::KeepAnswer => tokio::time::sleep(Duration::from_secs(600)).await,
                    _ if read == 0 => return Ok(()),
                    _ => client.write_all(&answered[..read]).await?,
                }
            }
        }
    }
}

/// Dropped sockets with this are reset, not closed.
fn reset(streams: &[&TcpStream]) -> std::io::Result<()> {
    for stream in streams {
        SockRef::from(*stream).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}
