//! A value read from files, and read again when they change.
//!
//! Files are looked at each second rather than watched: mounted secrets change by
//! swapped links, of which a watch tells nothing, and a look costs one system call.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What to follow, and under which name it is logged.
#[derive(Debug, Clone)]
pub struct Follow {
    /// Events are named `{event}_read` and `{event}_refused`.
    pub event: &'static str,
    /// A change of any of them is a reason to read all again.
    pub files: Vec<PathBuf>,
}

/// The value as it was last read well. Clones share it.
#[derive(Debug, Clone)]
pub struct Followed<T>(watch::Receiver<T>);

impl<T: Clone> Followed<T> {
    /// The value now.
    pub fn current(&self) -> T {
        self.0.borrow().clone()
    }

    /// Waits until another value was read, and gives it; never, once the runtime
    /// it is followed on has ended.
    pub async fn changed(&mut self) -> T {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.0.borrow_and_update().clone()
    }
}

/// By which a change is told: time of the change in ns, length, inode, device. None:
/// it can't be looked at.
type Stamp = Vec<Option<(i64, i64, u64, u64, u64)>>;

impl Follow {
    /// Reads the value, and goes on following it on the current runtime. What is
    /// refused later is logged once a change, and the last good value stays.
    ///
    /// # Errors
    /// It can't be read now.
    pub fn begin<T, E>(
        self,
        read: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Followed<T>, E>
    where
        T: Clone + Send + Sync + 'static,
        E: Display,
    {
        // Before the reading: what changes meanwhile is seen at the next look.
        let mut seen = self.stamp();
        let (sender, receiver) = watch::channel(read()?);
        tokio::spawn(async move {
            let mut look = tokio::time::interval(LOOK);
            look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                look.tick().await;
                if sender.is_closed() {
                    return;
                }
                let stamp = self.stamp();
                if stamp == seen {
                    continue;
                }
                seen = stamp;
                let files = self.named();
                match read() {
                    Ok(value) => {
                        sender.send_replace(value);
                        tracing::info!(
                            event = format!("{}_read", self.event),
                            "{files} read again"
                        );
                    }
                    Err(error) => tracing::error!(
                        event = format!("{}_refused", self.event),
                        "{files} changed and can't be used, what was read before stays: {error}"
                    ),
                }
            }
        });
        Ok(Followed(receiver))
    }

    fn stamp(&self) -> Stamp {
        self.files
            .iter()
            .map(|file| {
                let meta = std::fs::metadata(file).ok()?;
                Some((
                    meta.mtime(),
                    meta.mtime_nsec(),
                    meta.len(),
                    meta.ino(),
                    meta.dev(),
                ))
            })
            .collect()
    }

    fn named(&self) -> String {
        let names: Vec<_> = self
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_taken_up_and_a_bad_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("number");
        let replace = |text: &str| {
            let new = folder.path().join("new");
            std::fs::write(&new, text).expect("written");
            std::fs::rename(&new, &file).expect("replaced");
        };
        replace("1");
        let follow = Follow {
            event: "number",
            files: vec![file.clone()],
        };
        let read = file.clone();
        let mut number = follow
            .begin(move || {
                std::fs::read_to_string(&read)
                    .map_err(|error| error.to_string())?
                    .parse::<u32>()
                    .map_err(|error| error.to_string())
            })
            .expect("a number");
        assert_eq!(number.current(), 1);
        replace("2");
        assert_eq!(number.changed().await, 2);
        replace("many");
        tokio::time::sleep(3 * LOOK).await;
        assert_eq!(number.current(), 2, "the last good one stays");
        std::fs::remove_file(&file).expect("removed");
        tokio::time::sleep(3 * LOOK).await;
        assert_eq!(number.current(), 2);
        replace("3");
        assert_eq!(number.changed().await, 3);
    }
}
