//! What the hidden subcommand `cdr embedded clickhouse` does.

use std::path::{Path, PathBuf};
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
/// Between two requests to the engine to end.
const END_REPEAT: Duration = Duration::from_millis(200);
/// After this its terminal is closed.
const END_BUDGET: Duration = Duration::from_secs(10);
/// How long one probe may take.
const ANSWER: Duration = Duration::from_secs(5);
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

    let ended = CancellationToken::new();
    let watch = Watch {
        data: data.to_owned(),
        tail: tail.clone(),
        engine_port,
        port_file: port_file.clone(),
        password,
        ended: ended.clone(),
    };
    let watching = thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || watch.until_ended(terminal))
        .map_err(|source| gave_up(format!("no thread could be had for it: {source}")))?;

    let outcome = engine.run(&arguments(port));
    ended.cancel();
    let watched = watching.join();
    // Neither the library's destructors are run nor the lock is released
    // before the process ends: threads of the engine may still be there.
    std::mem::forget((engine, lock));
    outcome.map_err(|error| EmbeddedError::LibraryUnloadable {
        path: library.to_owned(),
        detail: error.to_string(),
    })?;
    match watched {
        Ok(Ok(End::Asked)) => Ok(()),
        Ok(Ok(End::Unasked)) => Err(gave_up(last_words(data, &tail))),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(gave_up("the thread that watches it failed".to_owned())),
    }
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

/// Why the engine ended.
enum End {
    Asked,
    Unasked,
}

/// What the second thread sees to: readiness, then the signal to stop.
struct Watch {
    data: PathBuf,
    tail: Tail,
    engine_port: PathBuf,
    port_file: PortFile,
    password: String,
    ended: CancellationToken,
}

impl Watch {
    /// Returns when the engine has ended, having asked it to on `SIGTERM`.
    fn until_ended(self, mut terminal: Terminal) -> Result<End, EmbeddedError> {
        let untracked = |source| EmbeddedError::Untracked {
            name: "SIGTERM".to_owned(),
            source,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(untracked)?;
        runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate()).map_err(untracked)?;
            tokio::select! {
                announced = self.announce_in_time() => announced?,
                _ = terminate.recv() => {
                    self.end(&mut terminal).await;
                    return Ok(End::Asked);
                }
                () = self.ended.cancelled() => return Ok(End::Unasked),
            }
            tokio::select! {
                _ = terminate.recv() => self.end(&mut terminal).await,
                () = self.ended.cancelled() => return Ok(End::Unasked),
            }
            Ok(End::Asked)
        })
    }

    /// Asks the engine to end until it has, or for as long as that makes sense.
    async fn end(&self, terminal: &mut Terminal) {
        let asking = async {
            loop {
                // Again and again: what is typed while it works may be thrown away.
                terminal.type_end();
                tokio::time::sleep(END_REPEAT).await;
            }
        };
        tokio::select! {
            () = self.ended.cancelled() => {}
            _ = tokio::time::timeout(END_BUDGET, asking) => {}
        }
    }

    async fn announce_in_time(&self) -> Result<(), EmbeddedError> {
        match tokio::time::timeout(READY_BUDGET, self.announce()).await {
            Ok(announced) => announced,
            Err(_) => Err(EmbeddedError::ClickHouseGaveUp {
                data: self.data.clone(),
                detail: format!(
                    "no answer in {} s; {}",
                    READY_BUDGET.as_secs(),
                    last_words(&self.data, &self.tail)
                ),
            }),
        }
    }

    /// Waits until ClickHouse answers a query, and says so.
    async fn announce(&self) -> Result<(), EmbeddedError> {
        let engine_port = PortFile::new(&self.engine_port);
        loop {
            if let Some(port) = engine_port.port()
                && answers(port, self.password.clone()).await
            {
                self.port_file.announce(port)?;
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
}

/// Whether `SELECT 1` works for the user that clients come as.
async fn answers(port: u16, password: String) -> bool {
    let asking = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .proxy(None)
            .timeout_global(Some(ANSWER))
            .build()
            .into();
        agent
            .post(format!("http://127.0.0.1:{port}/"))
            .header("X-ClickHouse-User", super::USER)
            .header("X-ClickHouse-Key", password)
            .send("SELECT 1")
            .is_ok()
    });
    asking.await.unwrap_or(false)
}

fn last_words(data: &Path, tail: &Tail) -> String {
    let logged = std::fs::read_to_string(data.join(settings::ERROR_LOG)).unwrap_or_default();
    let logged = logged.lines().rev().find(|line| line.contains("Exception"));
    logged.map_or_else(|| tail.text(), str::to_owned)
}
