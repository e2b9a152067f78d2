//! Answers every request with the same bytes, or not at all, and keeps what was
//! asked.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What the server does once it has read a request.
#[derive(Clone)]
pub enum Answer {
    /// Status line without `HTTP/1.1`, further headers, body.
    Http(&'static str, &'static [&'static str], &'static str),
    /// Nothing, for ever.
    Silence,
    /// Closes the connection.
    HangUp,
    /// Anything that is not HTTP.
    Bytes(Vec<u8>),
}

/// The requests of a false server, as they came.
pub type Requests = Arc<Mutex<Vec<Vec<u8>>>>;

/// Starts it and gives its URL. It ends with the runtime.
pub async fn start(answer: Answer) -> String {
    start_recording(answer).await.0
}

/// The same, with the requests that it gets.
pub async fn start_recording(answer: Answer) -> (String, Requests) {
    let requests = Requests::default();
    let seen = requests.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer.clone(), seen.clone()));
        }
    });
    (url, requests)
}

async fn serve(mut stream: TcpStream, answer: Answer, seen: Requests) -> std::io::Result<()> {
    let request = read_request(&mut stream).await?;
    seen.lock().unwrap().push(request);
    match answer {
        Answer::Http(status, headers, body) => {
            let headers: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
            let length = body.len();
            let text =
                format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
            stream.write_all(text.as_bytes()).await?;
            stream.shutdown().await
        }
        Answer::Silence => std::future::pending().await,
        Answer::HangUp => Ok(()),
        Answer::Bytes(bytes) => stream.write_all(&bytes).await,
    }
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut seen = Vec::new();
    loop {
        if let Some(end) = seen.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok())
                .unwrap_or(0);
            if seen.len() >= end + 4 + length {
                return Ok(seen);
            }
        }
        if stream.read_buf(&mut seen).await? == 0 {
            return Ok(seen);
        }
    }
}
