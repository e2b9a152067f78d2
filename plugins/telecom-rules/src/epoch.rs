//! Points in time, as vendors write them: integer seconds or milliseconds.
//!
//! Which of the two is told by which falls into the window of what can be:
//! from 90 days (the retention of the table) before the record was received to
//! 24 hours (clock skew) after. The range is checked first, on integers wide
//! enough that nothing can wrap; only then is there any arithmetic.

const DAY_MS: i128 = 24 * 60 * 60 * 1000;
const PAST_MS: i128 = 90 * DAY_MS;
const FUTURE_MS: i128 = DAY_MS;

/// The moment as whole seconds since the Unix epoch, milliseconds rounded down;
/// `None` if it is outside of the window either way. Edges belong to the
/// window.
pub fn to_seconds(value: i128, received_at_ms: i64) -> Option<u32> {
    let received = i128::from(received_at_ms);
    let window = (received - PAST_MS)..=(received + FUTURE_MS);
    let value = i64::try_from(value).ok()?;
    // Only where everything is near 1970 could both readings fall inside.
    if window.contains(&(i128::from(value) * 1000)) {
        return u32::try_from(value).ok();
    }
    if window.contains(&i128::from(value)) {
        return u32::try_from(value.div_euclid(1000)).ok();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_086_400;
    const OLDEST: i64 = NOW - 90 * 86_400;
    const NEWEST: i64 = NOW + 86_400;

    fn at(value: i64) -> Option<u32> {
        to_seconds(value.into(), NOW * 1000)
    }

    #[test]
    fn edges_belong_to_the_window() {
        for edge in [OLDEST, NEWEST, NOW] {
            assert_eq!(at(edge), u32::try_from(edge).ok());
            assert_eq!(at(edge * 1000), u32::try_from(edge).ok());
        }
        for outside in [OLDEST - 1, NEWEST + 1] {
            assert_eq!(at(outside), None);
        }
        for outside in [OLDEST * 1000 - 1, NEWEST * 1000 + 1] {
            assert_eq!(at(outside), None);
        }
    }

    #[test]
    fn the_window_moves_by_milliseconds() {
        let received = NOW * 1000 + 1;
        assert_eq!(to_seconds(OLDEST.into(), received), None);
        assert_eq!(to_seconds((OLDEST * 1000).into(), received), None);
        assert_eq!(
            to_seconds((OLDEST * 1000 + 1).into(), received),
            u32::try_from(OLDEST).ok()
        );
    }

    #[test]
    fn milliseconds_are_rounded_down() {
        assert_eq!(at(1_700_000_000_000), Some(1_700_000_000));
        assert_eq!(at(1_700_000_000_999), Some(1_700_000_000));
    }

    #[test]
    fn other_units_and_nonsense_are_refused() {
        for value in [
            0,
            -1,
            1,
            i64::MAX,
            i64::MIN,
            4_294_967_295,
            946_684_800,
            1_700_000_000_000_000,
            1_700_000_000_000_000_000,
            -1_700_000_000,
            -1_700_000_000_000,
            1_700_000_000 / 60,
            17_000_000_000,
        ] {
            assert_eq!(at(value), None, "{value}");
        }
        assert_eq!(to_seconds(i128::MAX, NOW * 1000), None);
        assert_eq!(to_seconds(i128::MIN, NOW * 1000), None);
    }

    #[test]
    fn odd_reception_times_never_wrap() {
        for received in [i64::MIN, -1, 0, 1, i64::MAX] {
            for value in [i128::MIN, -1, 0, 1, 4_294_967_296, i128::MAX] {
                let _ = to_seconds(value, received);
            }
        }
        // Past 2106 there is no DateTime for it.
        assert_eq!(to_seconds(4_294_967_296, 4_294_967_296_000), None);
    }
}
