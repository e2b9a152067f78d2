//! SIGTERM asks for a drain; a second signal ends the process. The process is
//! this test binary again, so that it may die.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Set in the process that receives the signals.
const ROLE: &str = "CDR_TEST_RECEIVES_SIGNALS";

/// Not a test by itself: what the process of the test below runs.
#[tokio::test]
async fn receiver() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let shutdown = cdr_telemetry::shutdown::on_signals();
    println!("\nready");
    shutdown.requested().await;
    println!("draining");
    std::future::pending::<()>().await;
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status()
        .expect("a shell");
    assert!(sent.success());
}

fn await_line(lines: &mut Lines<BufReader<ChildStdout>>, expected: &str) {
    let found = lines.any(|line| line.expect("text") == expected);
    assert!(found, "{expected:?} was not said");
}

#[test]
fn the_first_signal_drains_and_the_second_ends() {
    for (first, second) in [("TERM", "TERM"), ("INT", "TERM")] {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "receiver", "--nocapture"])
            .env(ROLE, "yes")
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let stdout = child.stdout.take().expect("piped");
        let mut lines = BufReader::new(stdout).lines();
        await_line(&mut lines, "ready");
        signal(&child, first);
        await_line(&mut lines, "draining");
        signal(&child, second);
        assert_eq!(
            child.wait().expect("ended").code(),
            Some(130),
            "{first} {second}"
        );
    }
}

/// Set in the process that gets stuck.
const STUCK: &str = "CDR_TEST_IS_STUCK";

/// Not a test by itself: a runtime whose one thread does nothing any more.
#[tokio::test]
async fn stuck() {
    if std::env::var_os(STUCK).is_none() {
        return;
    }
    let shutdown = cdr_telemetry::shutdown::on_signals();
    shutdown
        .enforce(std::time::Duration::from_millis(10))
        .expect("a thread");
    println!("\nstuck");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_process_that_is_stuck_ends_all_the_same_and_not_with_success() {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "stuck", "--nocapture"])
        .env(STUCK, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let stdout = child.stdout.take().expect("piped");
    await_line(&mut BufReader::new(stdout).lines(), "stuck");
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("ended").code(), Some(1));
}
