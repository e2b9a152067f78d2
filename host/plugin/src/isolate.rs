//! Finding the records that make a batch fail, by bisection. Pure.

use crate::error::{Fault, FaultKind};
use std::ops::Range;

/// A part of a batch and its answer. A part that failed has one record, unless
/// the budget ran out.
pub(crate) type Part<R> = (Range<usize>, Result<R, Fault>);

/// Runs a batch of `len` records; where it fails, halves it until each failing
/// record stands alone. `may_go_on` is asked before each further run: once it
/// says no, what is not yet answered fails with [`FaultKind::Isolation`].
///
/// The parts cover the batch exactly, in order.
pub(crate) fn isolate<R>(
    len: usize,
    mut run: impl FnMut(Range<usize>) -> Result<R, Fault>,
    mut may_go_on: impl FnMut() -> bool,
) -> Vec<Part<R>> {
    let mut parts = Vec::new();
    // Ranges yet to be run, the next one last.
    let mut todo: Vec<_> = (len > 0).then_some(0..len).into_iter().collect();
    let mut first_fault: Option<Fault> = None;
    while let Some(range) = todo.pop() {
        if let Some(fault) = &first_fault
            && !may_go_on()
        {
            let given_up = Fault {
                kind: FaultKind::Isolation,
                detail: format!(
                    "not run: the normalizer fails on its batch, and finding the record took too long ({fault})"
                ),
                stderr: String::new(),
            };
            parts.push((range, Err(given_up)));
            continue;
        }
        match run(range.clone()) {
            Ok(answer) => parts.push((range, Ok(answer))),
            Err(fault) if range.len() == 1 => parts.push((range, Err(fault))),
            Err(fault) => {
                first_fault.get_or_insert(fault);
                let middle = range.start + range.len() / 2;
                todo.push(middle..range.end);
                todo.push(range.start..middle);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn exactly_the_poisonous_records_fail(
            len in 0_usize..200,
            poison in prop::collection::btree_set(0_usize..200, 0..6),
        ) {
            let mut runs = 0;
            let parts = isolate(
                len,
                |range| {
                    runs += 1;
                    if poison.range(range.clone()).next().is_some() {
                        Err(Fault::new(FaultKind::Trap, "poison"))
                    } else {
                        Ok(range)
                    }
                },
                || true,
            );
            let mut next = 0;
            let mut failed = BTreeSet::new();
            for (range, answer) in parts {
                prop_assert_eq!(range.start, next);
                next = range.end;
                match answer {
                    Ok(answered) => prop_assert_eq!(answered, range),
                    Err(_) => {
                        prop_assert_eq!(range.len(), 1);
                        failed.insert(range.start);
                    }
                }
            }
            prop_assert_eq!(next, len);
            let expected: BTreeSet<_> = poison.iter().copied().filter(|row| *row < len).collect();
            prop_assert!(runs <= 1 + 2 * 8 * expected.len());
            prop_assert_eq!(failed, expected);
        }

        #[test]
        fn a_spent_budget_ends_the_search_and_loses_nothing(
            len in 1_usize..200,
            budget in 0_usize..50,
        ) {
            let mut left = budget;
            let mut runs = 0;
            let parts = isolate(
                len,
                |_| -> Result<(), Fault> {
                    runs += 1;
                    Err(Fault::new(FaultKind::Trap, "always"))
                },
                || {
                    left = left.saturating_sub(1);
                    left > 0
                },
            );
            prop_assert!(runs <= budget + 1);
            prop_assert_eq!(parts.iter().map(|(range, _)| range.len()).sum::<usize>(), len);
            prop_assert!(parts.iter().all(|(_, answer)| answer.is_err()));
        }
    }
}
