//! `cdr` processes: started, read, signalled.

use super::{normalizer, settings};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything takes here, loaded machines included.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A running `cdr`, with all that it said.
pub struct Cdr {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Cdr {
    /// Starts `cdr ARGS…` with these variables.
    pub fn start(args: &[&str], env: &[(&str, String)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cdr"));
        if !env.iter().any(|(name, _)| *name == "NORMALIZER_DIR") {
            command
                .env("NORMALIZER", normalizer())
                .env("NORMALIZER_SETTINGS", settings());
        }
        let mut child = command
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cdr starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut readers = Vec::new();
        for stream in [
            Box::new(child.stdout.take().unwrap()) as Box<dyn std::io::Read + Send>,
            Box::new(child.stderr.take().unwrap()),
        ] {
            let log = Arc::clone(&log);
            readers.push(std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    log.lock().unwrap().push(line);
                }
            }));
        }
        Self {
            child,
            log,
            readers,
        }
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// What stands behind this word at the start of a line, once there is one.
    pub fn said(&mut self, word: &str) -> String {
        let started = Instant::now();
        loop {
            for line in self.lines() {
                if let Some(rest) = line.strip_prefix(word) {
                    return rest.trim().to_owned();
                }
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!(
                    "cdr ended ({status}) before it said {word:?}:\n{}",
                    self.lines().join("\n")
                );
            }
            assert!(
                started.elapsed() < PATIENCE,
                "cdr did not say {word:?}:\n{}",
                self.lines().join("\n")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                for reader in self.readers.drain(..) {
                    reader.join().unwrap();
                }
                return status;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "cdr does not end:\n{}",
                self.lines().join("\n")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it in order and expects that to succeed.
    pub fn stop(mut self) -> Vec<String> {
        self.signal(Signal::INT);
        let status = self.ended();
        assert!(status.success(), "{status}:\n{}", self.lines().join("\n"));
        self.lines()
    }
}

impl Drop for Cdr {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `cdr up` on a data folder, and where its parts are.
pub struct Up {
    pub cdr: Cdr,
    pub api: String,
    pub worker: String,
    pub kafka: String,
    pub clickhouse: String,
    data: PathBuf,
}

impl Up {
    pub fn start(data: &Path) -> Self {
        let mut cdr = Cdr::start(&["up", "--data", &data.display().to_string()], &[]);
        cdr.said("ready;");
        let api = cdr.said("stats").replace("/stats", "");
        let metrics = cdr.said("metrics");
        let worker = metrics
            .split_whitespace()
            .next_back()
            .unwrap()
            .replace("/metrics", "");
        let clickhouse = cdr.said("clickhouse");
        Self {
            api,
            worker,
            kafka: cdr.said("kafka"),
            clickhouse: clickhouse.split_whitespace().next().unwrap().to_owned(),
            data: data.to_owned(),
            cdr,
        }
    }

    /// The user and the password of its ClickHouse.
    pub fn credentials(&self) -> (String, String) {
        let password = std::fs::read_to_string(self.data.join("clickhouse/password")).unwrap();
        ("cdr".to_owned(), password.trim().to_owned())
    }
}

/// An address that a host wrote into its port file.
pub fn address_in(file: &Path, host: &mut Cdr) -> SocketAddr {
    let started = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(file)
            && let Ok(addr) = text.trim().parse()
        {
            return addr;
        }
        if let Some(status) = host.child.try_wait().unwrap() {
            panic!("{status}:\n{}", host.lines().join("\n"));
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{} does not appear",
            file.display()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
