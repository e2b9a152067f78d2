//! Visits every state once, breadth first, so that what is found is found by a
//! shortest schedule.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hasher;

use super::world::{Action, Setup, World};

/// How much was visited.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub states: usize,
    pub steps: usize,
    /// Different ways from the start to an end.
    pub schedules: f64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen {
            states,
            steps,
            schedules,
        } = self;
        write!(
            f,
            "{states} states, {steps} steps, {schedules:.2e} schedules"
        )
    }
}

/// What was wrong, and how it came to it.
pub struct Found {
    pub wrong: String,
    pub schedule: Vec<Action>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.wrong)?;
        self.schedule
            .iter()
            .try_for_each(|action| writeln!(f, "  {action:?}"))
    }
}

/// 128 bits tell states apart: with a million of them, two alike by chance are
/// less likely than a broken machine.
pub type Fingerprint = u128;

/// Mixes whole words, which is quick without optimisation too.
struct Wide(u128);

impl Wide {
    fn mix(&mut self, word: u64) {
        // The multiplier of a well-known 128-bit linear congruential generator.
        self.0 =
            (self.0 ^ u128::from(word)).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
        self.0 ^= self.0 >> 64;
    }
}

impl Hasher for Wide {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.mix(
                chunk
                    .iter()
                    .fold(1, |word, &byte| word << 8 | u64::from(byte)),
            );
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// The two workers are alike, so it does not matter which is which.
pub fn fingerprint(world: &World) -> Fingerprint {
    let [one, other] = [[0, 1], [1, 0]].map(|order| {
        let mut hasher = Wide(1);
        world.hash_as(order, &mut hasher);
        hasher.0
    });
    one.min(other)
}

/// Visits everything.
pub fn explore(setup: &Setup) -> Result<Seen, Found> {
    let start = World::new(setup);
    let mut known = HashMap::from([(fingerprint(&start), 0)]);
    let mut came: Vec<Option<(usize, Action)>> = vec![None];
    let mut leads: Vec<Vec<usize>> = Vec::new();
    let mut ended = HashSet::new();
    let mut layer = vec![start];
    while !layer.is_empty() {
        let mut next_layer = Vec::new();
        for world in layer {
            let here = leads.len();
            world
                .finish(setup, &mut ended)
                .map_err(|wrong| found(wrong, &came, Some(here), None))?;
            let mut ways = Vec::new();
            for action in world.actions(setup) {
                let next = world
                    .after(action, setup)
                    .map_err(|wrong| found(wrong, &came, Some(here), Some(action)))?;
                ways.push(match known.entry(fingerprint(&next)) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        came.push(Some((here, action)));
                        next_layer.push(next);
                        *new.insert(came.len() - 1)
                    }
                });
            }
            leads.push(ways);
        }
        layer = next_layer;
    }
    Ok(Seen {
        states: leads.len(),
        steps: leads.iter().map(Vec::len).sum(),
        schedules: schedules(&leads),
    })
}

fn found(
    wrong: String,
    came: &[Option<(usize, Action)>],
    mut at: Option<usize>,
    last: Option<Action>,
) -> Found {
    let mut schedule: Vec<Action> = last.into_iter().collect();
    while let Some((before, action)) = at.and_then(|at| came[at]) {
        schedule.push(action);
        at = Some(before);
    }
    schedule.reverse();
    Found { wrong, schedule }
}

/// Counts the ways from the first state to the last ones. Every action uses
/// something up, so no way leads back.
fn schedules(leads: &[Vec<usize>]) -> f64 {
    let mut ways: Vec<Option<f64>> = vec![None; leads.len()];
    let mut open = vec![(0, false)];
    while let Some((state, left)) = open.pop() {
        if left {
            let sum = leads[state]
                .iter()
                .filter_map(|&next| ways[next])
                .sum::<f64>();
            ways[state] = Some(if leads[state].is_empty() { 1.0 } else { sum });
        } else if ways[state].is_none() {
            open.push((state, true));
            open.extend(leads[state].iter().map(|&next| (next, false)));
        }
    }
    ways[0].unwrap_or(0.0)
}
