//! The spool: a folder for dead letters that are too large for their topic.
//!
//! One file a dead letter, named by where its record came from, so that a record
//! that is consumed again finds its own file and does not make a second one. A
//! file is there whole and on disk before the topic is told of it.

use cdr_kafka::dead_letter::{DeadLetter, SpooledDeadLetter};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The folder.
#[derive(Debug, Clone)]
pub struct Spool {
    dir: PathBuf,
}

/// A dead letter in the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolFile {
    /// Its name, as the dead letter in the topic says it.
    pub name: String,
    /// Where it is on this machine.
    pub path: PathBuf,
}

impl Spool {
    /// Makes the folder if it is missing, and tries it.
    ///
    /// # Errors
    /// It can't be made or written to; nothing is worse than to find that out
    /// with a record in hand.
    pub fn open(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        // Names, not permissions: a read-only file system has fine permissions.
        tempfile::Builder::new().prefix(".probe").tempfile_in(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// Writes the whole dead letter that was meant for `topic`.
    ///
    /// # Errors
    /// The file, and why it could not be written.
    pub async fn keep(
        &self,
        letter: &DeadLetter<'_>,
        topic: &str,
    ) -> Result<SpoolFile, (PathBuf, io::Error)> {
        let name = format!(
            "{}-{}-{}-{}.json",
            letter.source_topic,
            letter.source_partition,
            letter.source_offset,
            // A topic that was made again has the same offsets.
            letter.source_timestamp_ms.unwrap_or(0),
        );
        let path = self.dir.join(&name);
        let content = match SpooledDeadLetter::new(topic, letter.encode()).encode() {
            Ok(content) => content,
            Err(error) => return Err((path, io::Error::other(error))),
        };
        let file = SpoolFile {
            name,
            path: path.clone(),
        };
        let dir = self.dir.clone();
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || write(&dir, &target, &content)).await;
        match written.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            Ok(()) => Ok(file),
            Err(error) => Err((path, error)),
        }
    }
}

fn write(dir: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".part").tempfile_in(dir)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The name is on disk only when its folder is.
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cdr_kafka::dead_letter::FailureReason;

    fn letter(payload: &[u8]) -> DeadLetter<'_> {
        DeadLetter {
            key: Some(b"k"),
            payload: Some(payload),
            reason: FailureReason::MalformedJson,
            failed_field: None,
            detail: "not JSON",
            failed_at_ms: 1_700_000_000_000,
            worker_instance: "worker-1",
            source_topic: "cdr.raw",
            source_partition: 2,
            source_offset: 77,
            source_timestamp_ms: Some(1_700_000_000_000),
            received_at_ms: 1_700_000_000_000,
            normalizer: None,
            replay_count: 0,
            trace: None,
        }
    }

    #[tokio::test]
    async fn a_record_that_comes_again_has_one_file_with_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("made/spool")).unwrap();
        let payload = vec![b'x'; 2_000_000];
        let file = spool.keep(&letter(&payload), "cdr.raw.dlq").await.unwrap();
        let again = spool.keep(&letter(&payload), "cdr.raw.dlq").await.unwrap();
        assert_eq!(file, again);
        let names: Vec<_> = std::fs::read_dir(dir.path().join("made/spool"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [file.name.as_str()]);
        let content = std::fs::read(&file.path).unwrap();
        let kept = SpooledDeadLetter::decode(&content).unwrap();
        assert_eq!(
            kept,
            SpooledDeadLetter::new("cdr.raw.dlq", letter(&payload).encode())
        );
    }

    #[test]
    fn a_folder_that_can_not_be_made_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(Spool::open(&file.join("spool")).is_err());
    }
}
