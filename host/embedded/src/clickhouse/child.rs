//! What the hidden subcommand `cdr embedded clickhouse` does.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::engine::{Engine, Tail, Terminal};
use super::settings;
use crate::folder::{self, FolderLock};
use crate::port::{self, PortFile};
use crate::{EmbeddedError, parent};

/// How long children of a parent that was killed may hold the folder.
const TAKEOVER: Duration = Duration::from_secs(5);
const READY_POLL: Duration = Duration::from_millis(10);
/// Less than the parent waits, so that the reason reaches it.
const READY_BUDGET: Duration = Duration::from_secs(45);
/// The engine writes its port here, in its folder.
const ENGINE_PORT: &str = "engine.port";

/// What the child is given.
#[derive(Debug, Clone)]
pub struct ClickHouseChildArgs {
    /// Folder of its data; made if missing.
    pub data: PathBuf,
    /// HTTP port on 127.0.0.1; 0 is one that the system chooses.
    pub port: u16,
    /// Where to write the port once ClickHouse answers `SELECT 1`.
    pub port_file: PathBuf,
    /// `libchdb.so`.
    pub library: PathBuf,
}

/// Serves until `SIGTERM`, then stops ClickHouse in order and returns.
///
/// Takes the process over: it changes the working directory, and standard
/// input and output become the engine's terminal, whose output is thrown away.
/// Logs must go to standard error. Call it outside of any async runtime.
///
/// # Errors
/// One sentence on why it could not serve, which is also written beside the port file.
pub fn run(args: ClickHouseChildArgs) -> Result<(), EmbeddedError> {
    parent::follow()?;
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|source| EmbeddedError::io("find", path, source))
    };
    // The engine runs in its folder: then no path of the user's is in its
    // arguments, where the word "local" would be taken for a command.
    let port_file = PortFile::new(absolute(&args.port_file)?);
    let data = absolute(&args.data)?;
    let library = absolute(&args.library)?;
    serve(&data, args.port, &port_file, &library).inspect_err(|error| port_file.refuse(error))
}

fn serve(
    data: &Path,
    port: u16,
    port_file: &PortFile,
    library: &Path,
) -> Result<(), EmbeddedError> {
    let lock = FolderLock::take(data, TAKEOVER)?;
    port_file.clear()?;
    port::check_free(port)?;
    let password = password(data)?;
    folder::write_atomically(
        &data.join(settings::CONFIG_FILE),
        settings::config().as_bytes(),
    )?;
    folder::write_atomically(
        &data.join(settings::USERS_FILE),
        settings::users(&password).as_bytes(),
    )?;
    let engine_port = data.join(ENGINE_PORT);
    folder::remove(&engine_port)?;
    std::env::set_current_dir(data).map_err(|source| EmbeddedError::io("enter", data, source))?;

    let engine = Engine::load(library)?;
    let gave_up = |detail: String| EmbeddedError::ClickHouseGaveUp {
        data: data.to_owned(),
        detail,
    };
    let (terminal, tail) = Terminal::open()
        .map_err(|source| gave_up(format!("no terminal could be had for it: {source}")))?;

    let ready = Arc::new(AtomicBool::new(false));
    let ended = CancellationToken::new();
    let (announced, announcement) = mpsc::channel();
    let watch = Watch {
        data: data.to_owned(),
        tail: tail.clone(),
        engine_port,
        port_file: port_file.clone(),
        password,
        ready: ready.clone(),
        ended: ended.clone(),
    };
    let watching = thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || announced.send(watch.until_stopped(terminal)))
        .map_err(|source| gave_up(format!("no thread could be had for it: {source}")))?;

    let outcome = engine.run(&arguments(port));
    ended.cancel();
    let _ = watching.join();
    let watched = announcement.recv().unwrap_or(Ok(()));
    drop(lock);
    // The library's destructors are never run: its threads may still be there.
    std::mem::forget(engine);
    outcome.map_err(|error| EmbeddedError::LibraryUnloadable {
        path: library.to_owned(),
        detail: error.to_string(),
    })?;
    watched?;
    if ready.load(Ordering::Acquire) {
        return Ok(());
    }
    Err(gave_up(last_words(data, &tail)))
}

fn arguments(port: u16) -> Vec<String> {
    let port = port.to_string();
    let to_file =
        format!("SELECT getServerPort('http_port') INTO OUTFILE '{ENGINE_PORT}' FORMAT TSV");
    let arguments = [
        "clickhouse",
        "--config-file",
        settings::CONFIG_FILE,
        "--path",
        "data",
        "--log-level",
        "error",
        "--listen_host",
        "127.0.0.1",
        "--http_port",
        &port,
        "--output-format",
        "TabSeparated",
        "--disable_suggestion",
        "--history_file",
        "/dev/null",
        "--interactive",
        "--query",
        "SYSTEM START LISTEN HTTP",
        "--query",
        &to_file,
    ];
    arguments.map(str::to_owned).to_vec()
}

/// The password of this folder; made up at its first start.
fn password(data: &Path) -> Result<String, EmbeddedError> {
    let path = super::password_file(data);
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(EmbeddedError::io("read", path, source));
        }
        _ => {}
    }
    let password = uuid::Uuid::new_v4().simple().to_string();
    // Mode 0600, as `tempfile` makes its files.
    folder::write_atomically(&path, format!("{password}\n").as_bytes())?;
    Ok(password)
}

/// What the second thread sees to: readiness, then the signal to stop.
struct Watch {
    data: PathBuf,
    tail: Tail,
    engine_port: PathBuf,
    port_file: PortFile,
    password: String,
    ready: Arc<AtomicBool>,
    ended: CancellationToken,
}

impl Watch {
    /// Ends when the engine has ended, or closes its terminal on `SIGTERM`.
    fn until_stopped(self, terminal: Terminal) -> Result<(), EmbeddedError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| EmbeddedError::Untracked {
                name: "SIGTERM".to_owned(),
                source,
            })?;
        runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())
                .map_err(|source| EmbeddedError::Untracked { name: "SIGTERM".to_owned(), source })?;
            tokio::select! {
                announced = tokio::time::timeout(READY_BUDGET, self.announce()) => {
                    announced.map_err(|_| EmbeddedError::ClickHouseGaveUp {
                        data: self.data.clone(),
                        detail: format!("no answer in {} s; {}", READY_BUDGET.as_secs(), last_words(&self.data, &self.tail)),
                    })??;
                }
                _ = terminate.recv() => {
                    self.ready.store(true, Ordering::Release);
                    drop(terminal);
                    return Ok(());
                }
                () = self.ended.cancelled() => return Ok(()),
            }
            tokio::select! {
                _ = terminate.recv() => {}
                () = self.ended.cancelled() => {}
            }
            drop(terminal);
            Ok(())
        })
    }

    /// Waits until ClickHouse answers a query, and says so.
    async fn announce(&self) -> Result<(), EmbeddedError> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .unwrap_or_default();
        let engine_port = PortFile::new(&self.engine_port);
        loop {
            if let Some(port) = engine_port.port()
                && self.answers(&client, port).await
            {
                self.port_file.announce(port)?;
                self.ready.store(true, Ordering::Release);
                tracing::info!(
                    event = "clickhouse_ready",
                    port,
                    "ClickHouse serves on 127.0.0.1:{port}"
                );
                return Ok(());
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    async fn answers(&self, client: &reqwest::Client, port: u16) -> bool {
        let request = client
            .post(format!("http://127.0.0.1:{port}/"))
            .header("X-ClickHouse-User", super::USER)
            .header("X-ClickHouse-Key", &self.password)
            .body("SELECT 1");
        match request.send().await {
            Ok(response) => response.status().is_success(),
            Err(_) => false,
        }
    }
}

fn last_words(data: &Path, tail: &Tail) -> String {
    let logged = std::fs::read_to_string(data.join(settings::ERROR_LOG)).unwrap_or_default();
    let logged = logged.lines().rev().find(|line| line.contains("Exception"));
    logged.map_or_else(|| tail.text(), str::to_owned)
}
