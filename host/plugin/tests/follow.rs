//! Following a registry: what serves, what is refused, what is gone back to.

mod common;

use cdr_plugin_host::registry::{Choice, SettingsFile, VersionId};
use cdr_plugin_host::{
    FollowConfig, Follower, Live, Normalizer, NothingToPrepare, Prepare, Registry, TrustedKeys,
    Unprepared,
};
use common::{host, hostile, tight};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

const PATIENCE: Duration = Duration::from_secs(60);

/// A registry whose activations are one file with various settings: settings are part
/// of what serves.
struct Bed {
    _dir: tempfile::TempDir,
    registry: Registry,
    id: VersionId,
    sha256: String,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(dir.path().join("normalizers"));
        let id = VersionId::new("hostile", "0.1.0").unwrap();
        let wasm = std::fs::read(hostile()).unwrap();
        let added = registry.add(&id, &wasm, None, None).unwrap();
        Self {
            _dir: dir,
            registry,
            id,
            sha256: added.sha256,
        }
    }

    fn choice(&self, settings: Option<SettingsFile>) -> Choice {
        Choice {
            name: self.id.name().to_owned(),
            version: self.id.version().to_string(),
            sha256: self.sha256.clone(),
            settings,
        }
    }

    /// Activates the file with these settings; their digest.
    fn activate(&self, settings: &str) -> String {
        let settings = self.registry.add_settings(settings).unwrap();
        let digest = settings.sha256.clone();
        let choice = self.choice(Some(settings));
        self.registry.activate(choice, None).unwrap();
        digest
    }

    fn write_active(&self, text: &str) {
        std::fs::write(self.registry.dir().join("active.json"), text).unwrap();
    }

    fn config(&self) -> FollowConfig {
        FollowConfig {
            host: host(tight()),
            shadow_host: None,
            registry: self.registry.clone(),
            keys: TrustedKeys::default(),
            poll: Duration::from_millis(50),
        }
    }

    async fn start(&self) -> (Follower, Live) {
        Follower::start(self.config()).await.expect("it starts")
    }
}

/// Waits until the state is as wanted.
async fn state_when(
    live: &mut Live,
    wanted: impl Fn(&cdr_plugin_host::LiveState) -> bool,
) -> Arc<cdr_plugin_host::LiveState> {
    let waiting = async {
        loop {
            let state = live.state();
            if wanted(&state) {
                return state;
            }
            live.state_changed().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("in time")
}

/// A host that never gets ready for one version.
struct Never {
    digest: String,
    asked: Arc<Notify>,
}

impl Prepare for Never {
    async fn prepare(&self, candidate: &Normalizer) -> Result<(), Unprepared> {
        if candidate.provenance().settings_digest == self.digest {
            self.asked.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// What was withdrawn while a host made ready for it never serves, and what is wanted
/// now does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_does_not_wait_for_what_it_takes_back() {
    let bed = Bed::new();
    let first = bed.activate("{}");
    let (follower, mut live) = bed.start().await;
    let stuck = bed.activate(r#"{"n":1}"#);
    let asked = Arc::new(Notify::new());
    let never = Never {
        digest: stuck,
        asked: Arc::clone(&asked),
    };
    let _following = AbortOnDropHandle::new(tokio::spawn(follower.run(never)));
    tokio::time::timeout(PATIENCE, asked.notified())
        .await
        .expect("it is made ready for");
    let back = bed.registry.rollback(None, None).unwrap().now;
    let state = state_when(&mut live, |state| state.revision == back.revision).await;
    assert_eq!(state.serving.settings_digest, first);
    assert_eq!((state.swaps, state.refusals), (0, 0));
}

/// A host that is ready at the third time of asking.
struct Third {
    asked: Arc<AtomicU32>,
}

impl Prepare for Third {
    async fn prepare(&self, _: &Normalizer) -> Result<(), Unprepared> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(Unprepared {
                kind: "not_yet",
                message: "soon".to_owned(),
                again: true,
            }),
            _ => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_in_order_soon_is_tried_again_by_itself() {
    let bed = Bed::new();
    bed.activate("{}");
    let (follower, mut live) = bed.start().await;
    let second = bed.activate(r#"{"n":1}"#);
    let asked = Arc::new(AtomicU32::new(0));
    let third = Third {
        asked: Arc::clone(&asked),
    };
    let _following = AbortOnDropHandle::new(tokio::spawn(follower.run(third)));
    let state = state_when(&mut live, |state| state.swaps == 1).await;
    assert_eq!(state.serving.settings_digest, second);
    assert_eq!(state.refused, None);
    assert_eq!(state.refusals, 1, "the same once more is no news");
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

/// Before it runs, a host may go back step by step; then there is nothing left.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_can_not_serve_with_what_is_active_goes_back() {
    let bed = Bed::new();
    let first = bed.activate("{}");
    bed.activate(r#"{"n":1}"#);
    let (mut follower, live) = bed.start().await;
    let cause = Unprepared {
        kind: "incompatible_table",
        message: "another type".to_owned(),
        again: false,
    };
    follower.fall_back(cause.clone()).await.expect("a way back");
    assert_eq!(
        live.current().normalizer.provenance().settings_digest,
        first
    );
    let state = live.state();
    assert_eq!(state.revision, 1);
    let refused = state.refused.as_ref().unwrap();
    assert_eq!(
        (refused.kind, refused.revision),
        ("incompatible_table", Some(2))
    );
    assert_eq!(follower.fall_back(cause.clone()).await, Err(cause));
}

/// The newest that loads, whatever is wrong with the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_passes_over_what_can_not_be_loaded() {
    let bed = Bed::new();
    bed.activate("{}");
    let good = bed.activate(r#"{"n":1}"#);
    let last = bed.registry.active().unwrap();
    bed.write_active("{");
    let (_, live) = bed.start().await;
    let state = live.state();
    assert_eq!(state.serving.settings_digest, good);
    assert_eq!(state.refused.as_ref().unwrap().kind, "activation");

    // By hand, and without the number of what was before.
    let mut by_hand = last.clone();
    by_hand.active.sha256 = "0".repeat(64);
    by_hand.revision = 9;
    by_hand.previous = None;
    bed.write_active(&serde_json::to_string(&by_hand).unwrap());
    let (follower, mut live) = bed.start().await;
    assert_eq!(live.state().serving.settings_digest, good);
    let refused = live.state().refused.clone().unwrap();
    assert_eq!((refused.kind, refused.revision), ("wrong_digest", Some(9)));
    let _following = AbortOnDropHandle::new(tokio::spawn(follower.run(NothingToPrepare)));
    bed.registry.rollback(None, None).unwrap();
    state_when(&mut live, |state| state.refused.is_none()).await;

    // Nothing at all is an error, which says what is wrong with what is wanted.
    let empty = tempfile::tempdir().unwrap();
    let mut config = bed.config();
    config.registry = Registry::new(empty.path());
    let refusal = Follower::start(config)
        .await
        .expect_err("nothing is active");
    assert!(
        refusal.to_string().contains("cdr plugin activate"),
        "{refusal}"
    );
}

/// Two operators at once: the second is told.
#[test]
fn a_change_that_was_checked_against_another_state_changes_nothing() {
    let bed = Bed::new();
    bed.activate("{}");
    bed.activate(r#"{"n":1}"#);
    let before = bed.registry.active().unwrap();
    let refused = bed.registry.rollback(None, Some(1)).unwrap_err();
    assert_eq!(refused.tag(), "overtaken");
    let refused = bed
        .registry
        .activate(bed.choice(None), Some(1))
        .unwrap_err();
    assert!(refused.to_string().contains("revision 2"), "{refused}");
    assert_eq!(bed.registry.active().unwrap(), before);
    bed.registry.rollback(None, Some(2)).unwrap();
}

/// The history is bounded, and settings go when the last activation that names them
/// does.
#[test]
fn old_activations_and_their_settings_are_tidied_away() {
    let bed = Bed::new();
    for round in 0..105 {
        bed.activate(&format!("{{\"n\":{round}}}"));
    }
    let history = bed.registry.history().unwrap();
    let settings = std::fs::read_dir(bed.registry.dir().join("settings")).unwrap();
    assert!(history.len() <= 102, "{}", history.len());
    assert_eq!(settings.count(), history.len());
    let named = history
        .iter()
        .map(|past| past.active.settings.as_ref().unwrap());
    for settings in named {
        assert!(bed.registry.dir().join(&settings.file).is_file());
    }
}
