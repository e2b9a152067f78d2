//! What a log lost before it was consumed. Pure: the polling thread tells what
//! it consumes, the lag thread what it reads; what was lost comes out.
//!
//! ```text
//!   committed 40        consumed 55 …
//!      ├── retention took 40..55 ──┤
//!   low watermark, read after that: 55, so 15 offsets are lost
//! ```
//!
//! A consumer of an offset that is out of range starts at the earliest record,
//! silently. So every jump from the next offset to a later one is kept until the
//! low watermark is read *after* it: what lies below that was removed by
//! retention, unread. A jump that the watermark does not explain is a gap of a
//! compacted or transactional log, and no loss. Where nothing is left to jump
//! to, the watermark itself must have passed the next offset, twice, with the
//! client's queue found empty in between: records that are queued there were
//! fetched before retention came, and are not lost.
//!
//! The counts are upper bounds, and nothing is lost that is not in them: an
//! offset counts though no record may have been there, though its row may have
//! been inserted without a commit, and though a gap was only passed by retention
//! before the watermark was read. What one process has reported, it does not
//! report again.
//!
//! A position *beyond* the end says that the topic was cut or made again; it is
//! consumed from the earliest record, and reported as a reset.

use std::collections::{BTreeMap, VecDeque};

/// Jumps of one partition that wait for a watermark. Logs of transactions have
/// many small ones; retention makes one.
const MAX_GAPS: usize = 4096;

/// One thing that went wrong with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// Retention removed offsets before they were consumed.
    Lost {
        /// The partition.
        partition: i32,
        /// The first lost offset.
        from: i64,
        /// The first one after it that was not lost here.
        to: i64,
    },
    /// The position was beyond the end of the log.
    Reset {
        /// The partition.
        partition: i32,
        /// The next offset that was to be consumed.
        expected: i64,
        /// The offset that was found instead, or the first there is.
        found: i64,
    },
}

/// What became of the log of a partition since the start, all assignments
/// together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct LogAccount {
    /// Offsets that retention removed before they were consumed.
    pub lost_to_retention: u64,
    /// How often the position was beyond the end of the log.
    pub resets: u64,
}

/// Names the assignment that an answer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    epoch: u64,
    /// Jumps that were there when the question was put.
    jumps: u64,
    next: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Jump {
    number: u64,
    from: i64,
    to: i64,
}

#[derive(Debug, Default)]
struct Track {
    epoch: u64,
    /// Only kept for jumps that still wait.
    gone: bool,
    /// Whether the group's position at the assignment is known, or will never be.
    started: bool,
    /// The first offset consumed before that.
    first: Option<i64>,
    /// The next offset to consume.
    next: Option<i64>,
    /// `next` is a watermark, not a position: an earlier record is no surprise.
    guessed: bool,
    jumps: u64,
    waiting: VecDeque<Jump>,
    /// `next` when the log did not fit it, and how often the client's queue had
    /// been empty by then.
    suspect: Option<(i64, u64)>,
}

impl Track {
    fn jump(&mut self, from: i64, to: i64) {
        self.jumps += 1;
        if self.waiting.len() == MAX_GAPS {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Jump {
            number: self.jumps,
            from,
            to,
        });
    }
}

/// Watches the logs of the partitions that are held.
#[derive(Debug, Default)]
pub struct LogWatch {
    tracks: BTreeMap<i32, Track>,
    accounts: BTreeMap<i32, LogAccount>,
    /// What was reported lost, by partition: disjoint, from → to.
    reported: BTreeMap<i32, BTreeMap<i64, i64>>,
    findings: Vec<Finding>,
    last_epoch: u64,
}

impl LogWatch {
    /// A partition was assigned.
    pub fn assigned(&mut self, partition: i32) {
        self.last_epoch += 1;
        let before = self.tracks.remove(&partition).unwrap_or_default();
        let track = Track {
            epoch: self.last_epoch,
            jumps: before.jumps,
            waiting: before.waiting,
            ..Track::default()
        };
        self.tracks.insert(partition, track);
    }

    /// A partition is gone. What it jumped over may be committed, so that the
    /// next owner does not see it: it is still to be judged here.
    pub fn gone(&mut self, partition: i32) {
        let Some(before) = self.tracks.remove(&partition) else {
            return;
        };
        if !before.waiting.is_empty() {
            self.last_epoch += 1;
            let track = Track {
                epoch: self.last_epoch,
                gone: true,
                started: true,
                jumps: before.jumps,
                waiting: before.waiting,
                ..Track::default()
            };
            self.tracks.insert(partition, track);
        }
    }

    /// A record was consumed. Returns whether watermarks should be read soon.
    pub fn consumed(&mut self, partition: i32, offset: i64) -> bool {
        let Some(track) = self.tracks.get_mut(&partition).filter(|t| !t.gone) else {
            return false;
        };
        if !track.started && track.first.is_none() {
            track.first = Some(offset);
        }
        let before = track.next.replace(offset + 1);
        let guessed = std::mem::take(&mut track.guessed);
        track.suspect = None;
        match before {
            Some(next) if offset > next => {
                track.jump(next, offset);
                return true;
            }
            Some(next) if offset < next && !guessed => self.reset(partition, next, offset),
            _ => {}
        }
        false
    }

    /// Partitions whose committed position is to be read, and for what.
    pub fn unstarted(&self) -> Vec<(i32, Asked)> {
        self.tracks
            .iter()
            .filter(|(_, track)| !track.started)
            .filter_map(|(&partition, _)| Some((partition, self.ask(partition)?)))
            .collect()
    }

    /// Whether the start of a partition is known, or nothing waits for it.
    pub fn is_started(&self, partition: i32) -> bool {
        self.tracks
            .get(&partition)
            .is_none_or(|track| track.started)
    }

    /// Something of this assignment is committed now: where the group stood
    /// before can't be read any more. If it never was, gives the first offset that
    /// was consumed: what was lost before it will never be known.
    pub fn committing(&mut self, partition: i32) -> Option<i64> {
        let track = self.tracks.get_mut(&partition)?;
        let was_started = std::mem::replace(&mut track.started, true);
        track.first.filter(|_| !was_started)
    }

    /// The group's committed offset, read before anything was committed in this
    /// assignment.
    pub fn start_read(&mut self, partition: i32, asked: Asked, committed: Option<i64>) {
        let Some(track) = self.tracks.get_mut(&partition) else {
            return;
        };
        if track.started || track.epoch != asked.epoch {
            return;
        }
        track.started = true;
        let Some(committed) = committed else {
            return;
        };
        match track.first {
            None => {
                track.next = Some(committed);
                track.guessed = false;
            }
            Some(first) if first > committed => track.jump(committed, first),
            Some(first) if first < committed => self.reset(partition, committed, first),
            Some(_) => {}
        }
    }

    /// The partitions whose watermarks are wanted.
    pub fn watched(&self) -> Vec<i32> {
        self.tracks.keys().copied().collect()
    }

    /// To be called before watermarks are read; none when nothing is wanted.
    pub fn ask(&self, partition: i32) -> Option<Asked> {
        self.tracks.get(&partition).map(|track| Asked {
            epoch: track.epoch,
            jumps: track.jumps,
            next: track.next,
        })
    }

    /// The watermarks of a partition. `drained`: how often the client's queue was
    /// found empty so far, while it was allowed to fill.
    pub fn watermarks(&mut self, partition: i32, asked: Asked, drained: u64, low: i64, high: i64) {
        let Some(track) = self.tracks.get_mut(&partition) else {
            return;
        };
        if track.epoch != asked.epoch {
            return;
        }
        let mut lost = Vec::new();
        while let Some(&Jump { number, from, to }) = track.waiting.front() {
            if number > asked.jumps {
                break;
            }
            track.waiting.pop_front();
            if low > from {
                lost.push((from, low.min(to)));
            }
        }
        let mut beyond = None;
        match track.next {
            // Nothing was consumed and nothing was ever committed: what is there
            // now is what is to be consumed.
            None if track.started && !track.gone => {
                (track.next, track.guessed) = (Some(low), true);
            }
            Some(next) if asked.next == Some(next) && (low > next || high < next) => {
                match track.suspect {
                    Some((suspected, was_drained)) if suspected == next => {
                        if high < next {
                            beyond = Some(next);
                        } else if drained > was_drained {
                            lost.push((next, low));
                        }
                        if beyond.is_some() || drained > was_drained {
                            (track.next, track.guessed) = (Some(low), true);
                            track.suspect = None;
                        }
                    }
                    _ => track.suspect = Some((next, drained)),
                }
            }
            _ => track.suspect = None,
        }
        if track.gone && track.waiting.is_empty() {
            self.tracks.remove(&partition);
        }
        for (from, to) in lost {
            self.lost(partition, from, to);
        }
        if let Some(expected) = beyond {
            self.reset(partition, expected, low);
        }
    }

    /// What was found since this was last called.
    pub fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Of every partition with a finding since the start.
    pub fn accounts(&self) -> BTreeMap<i32, LogAccount> {
        self.accounts.clone()
    }

    /// Reports what of a range was not reported before.
    fn lost(&mut self, partition: i32, from: i64, to: i64) {
        let reported = self.reported.entry(partition).or_default();
        let mut rest = vec![(from, to)];
        for (&start, &end) in reported.iter() {
            rest = rest
                .into_iter()
                .flat_map(|(from, to)| [(from, to.min(start)), (from.max(end), to)])
                .filter(|(from, to)| from < to)
                .collect();
        }
        for (from, to) in rest {
            reported.insert(from, to);
            self.accounts
                .entry(partition)
                .or_default()
                .lost_to_retention += to.abs_diff(from);
            self.findings.push(Finding::Lost {
                partition,
                from,
                to,
            });
        }
    }

    fn reset(&mut self, partition: i32, expected: i64, found: i64) {
        // The offsets begin anew, and so does what is said of them.
        self.reported.remove(&partition);
        self.accounts.entry(partition).or_default().resets += 1;
        self.findings.push(Finding::Reset {
            partition,
            expected,
            found,
        });
    }
}
