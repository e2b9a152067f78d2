//! What a keeper does to a process, and how it notes what becomes of it. The
//! processes are real ones, a shell in each.

use std::path::Path;
use std::time::{Duration, Instant};

use cdr_verify::journal::{Cause, Event, Journal, What};
use cdr_verify::parts::keeper::Keeper;
use cdr_verify::parts::launcher::{Cdr, Launcher};
use cdr_verify::plan::Target;

/// Longer than anything takes here, loaded machines included.
const PATIENCE: Duration = Duration::from_secs(60);
const AT_ONCE: Duration = Duration::ZERO;
/// Does nothing until it is told to end, and then ends in order.
const ORDERLY: &str = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done";

async fn kept(folder: &Path, script: &str, journal: &Journal) -> Keeper {
    let launcher = Launcher::Cdr(Cdr {
        exe: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        name: "worker-1".to_owned(),
        logs: folder.to_owned(),
        env: Box::new(Vec::new),
        numbered: false,
    });
    Keeper::start(Target::Worker1, launcher, journal.clone())
        .await
        .unwrap()
}

/// Waits until the journal holds what `wanted` finds.
async fn seen<T>(journal: &Journal, wanted: impl Fn(&What) -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        let found = journal
            .entries()
            .iter()
            .find_map(|entry| match &entry.event {
                Event::Process(_, what) => wanted(what),
                _ => None,
            });
        if let Some(found) = found {
            return found;
        }
        let entries = journal.entries();
        assert!(started.elapsed() < PATIENCE, "{entries:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Its first end: why, with which code, by which signal, with which last words.
async fn end(journal: &Journal) -> (Cause, Option<i32>, Option<i32>, String) {
    seen(journal, |what| match what {
        What::Ended { cause, exit, words } => Some((*cause, exit.code, exit.signal, words.clone())),
        _ => None,
    })
    .await
}

/// Waits until the shell has set its trap.
async fn up(folder: &Path) {
    let started = Instant::now();
    let log = folder.join("worker-1.log");
    while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("up")) {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn starts(journal: &Journal) -> usize {
    let is_start = |event: &Event| matches!(event, Event::Process(_, What::Started { .. }));
    journal
        .entries()
        .iter()
        .filter(|entry| is_start(&entry.event))
        .count()
}

#[tokio::test]
async fn a_killed_process_comes_back() {
    let (folder, journal) = (tempfile::tempdir().unwrap(), Journal::default());
    let keeper = kept(folder.path(), ORDERLY, &journal).await;
    let first = keeper.state().borrow().pid;
    keeper.kill(AT_ONCE);
    let (cause, code, signal, _) = end(&journal).await;
    assert_eq!((cause, code, signal), (Cause::Killed, None, Some(9)));
    keeper.heal().await.unwrap();
    let state = *keeper.state().borrow();
    assert!(state.pid.is_some() && state.pid != first);
    assert_eq!((state.starts, starts(&journal)), (2, 2));
}

#[tokio::test]
async fn healing_does_not_wait_for_the_time_of_the_next_start() {
    let (folder, journal) = (tempfile::tempdir().unwrap(), Journal::default());
    let keeper = kept(folder.path(), ORDERLY, &journal).await;
    keeper.kill(Duration::from_secs(3600));
    tokio::time::timeout(PATIENCE, keeper.heal())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(starts(&journal), 2);
}

#[tokio::test]
async fn sigterm_shows_how_it_ends_and_healing_waits_for_that() {
    let (folder, journal) = (tempfile::tempdir().unwrap(), Journal::default());
    let keeper = kept(folder.path(), ORDERLY, &journal).await;
    up(folder.path()).await;
    keeper.terminate(AT_ONCE);
    keeper.heal().await.unwrap();
    let (cause, code, ..) = end(&journal).await;
    assert!(matches!(cause, Cause::Terminated(_)));
    assert_eq!(code, Some(0));
    assert_eq!(starts(&journal), 2);
}

#[tokio::test]
async fn a_process_that_ends_by_itself_is_noted_with_its_last_words_and_started_again() {
    let (folder, journal) = (tempfile::tempdir().unwrap(), Journal::default());
    let script = "echo first; echo 'can not go on' >&2; exit 3";
    let keeper = kept(folder.path(), script, &journal).await;
    let (cause, code, _, words) = end(&journal).await;
    assert_eq!((cause, code), (Cause::Itself, Some(3)));
    assert_eq!(words, "can not go on");
    let mut state = keeper.state();
    let again = state.wait_for(|state| state.starts >= 2);
    tokio::time::timeout(PATIENCE, again)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_frozen_process_stands_still_until_it_is_healed() {
    let (folder, journal) = (tempfile::tempdir().unwrap(), Journal::default());
    let keeper = kept(folder.path(), ORDERLY, &journal).await;
    let pid = keeper.state().borrow().pid.unwrap();
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    };
    keeper.freeze(Duration::from_secs(3600));
    seen(&journal, |what| {
        matches!(what, What::Frozen(_)).then_some(())
    })
    .await;
    let started = Instant::now();
    while !is_stopped() {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    keeper.heal().await.unwrap();
    while is_stopped() {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(starts(&journal), 1, "it is the same process");
}

#[tokio::test]
async fn a_frozen_process_can_be_killed() {
    let (folder, journal) = (tempfile::tempdir().unwrap(), Journal::default());
    let keeper = kept(folder.path(), ORDERLY, &journal).await;
    keeper.freeze(Duration::from_secs(3600));
    keeper.kill(AT_ONCE);
    assert_eq!(end(&journal).await.0, Cause::Killed);
    keeper.heal().await.unwrap();
    assert_eq!(starts(&journal), 2);
}

#[tokio::test]
async fn what_can_not_be_started_says_so() {
    let (folder, journal) = (tempfile::tempdir().unwrap(), Journal::default());
    let launcher = Launcher::Cdr(Cdr {
        exe: folder.path().join("nothing"),
        args: Vec::new(),
        name: "worker-1".to_owned(),
        logs: folder.path().to_owned(),
        env: Box::new(Vec::new),
        numbered: false,
    });
    let error = Keeper::start(Target::Worker1, launcher, journal.clone())
        .await
        .unwrap_err();
    assert!(format!("{error:#}").contains("nothing"), "{error:#}");
    seen(&journal, |what| {
        matches!(what, What::StartFailed(_)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nothing_is_left_after_stop() {
    let (folder, journal) = (tempfile::tempdir().unwrap(), Journal::default());
    let keeper = kept(folder.path(), ORDERLY, &journal).await;
    let pid = keeper.state().borrow().pid.unwrap();
    keeper.stop().await;
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}
