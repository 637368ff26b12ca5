//! Timestamps of strace: since the epoch (`-ttt`), time of day (`-t`, `-tt`), or since the previous line (`-r`).

/// The largest thread id. A larger number at the beginning of a line is a timestamp.
pub(super) const MOST_THREAD: u32 = 1 << 22;
const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Smallest value that is read as a time since the epoch (a time in 1973), in ns.
const EPOCH: i64 = 100_000_000 * SECOND;

/// The timestamp of a line, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallTimestamp {
    /// Time since the epoch, or since the previous line, in ns.
    Seconds(i64),
    /// Time since midnight, in ns.
    OfDay(i64),
}

/// Converts the timestamps of lines into times of one clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallClock {
    /// Whether times are relative to the previous line.
    is_relative: bool,
    last: i64,
    /// Total length of the days that have ended since the first line (one per midnight), in ns.
    midnights: i64,
}

impl CallClock {
    /// Detects from the first lines whether times are relative to the previous line: the first time is 0, or a time decreases.
    pub fn of(head: &str) -> Self {
        let stamps = head.lines().filter_map(|line| match stamp_of(super::strace::thread_of(line).1)?.0 {
            CallTimestamp::Seconds(ns) => Some(ns),
            CallTimestamp::OfDay(_) => None,
        });
        let (mut first, mut last, mut goes_back) = (None, 0, false);
        for ns in stamps {
            if ns > EPOCH {
                return Self::default();
            }
            goes_back |= first.is_some() && ns < last;
            (first, last) = (first.or(Some(ns)), ns);
        }
        Self { is_relative: goes_back || first == Some(0), ..Self::default() }
    }

    /// The time of a line, in ns.
    pub fn at(&mut self, stamp: CallTimestamp) -> i64 {
        let at = match stamp {
            CallTimestamp::Seconds(ns) if self.is_relative => self.last.saturating_add(ns),
            CallTimestamp::Seconds(ns) => ns,
            CallTimestamp::OfDay(ns) => {
                // A time of day that is at least 12 hours earlier than the previous one means that midnight has passed.
                if ns + self.midnights + DAY / 2 < self.last {
                    self.midnights += DAY;
                }
                ns + self.midnights
            }
        };
        self.last = at;
        at
    }
}

/// Parses the timestamp at the beginning of a text; also returns the rest. An interval such as `(+ 0.000012)`, which `-r` adds after other
/// timestamps, is skipped.
pub(super) fn stamp_of(text: &str) -> Option<(CallTimestamp, &str)> {
    let (word, rest) = text.split_once(' ')?;
    let stamp = if word.contains(':') { CallTimestamp::OfDay(of_day(word)?) } else { CallTimestamp::Seconds(since_epoch(word)?) };
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix("(+") {
        Some(between) => between.split_once(')')?.1.trim_start(),
        None => rest,
    };
    Some((stamp, rest))
}

/// Parses `12:01:02` or `12:01:02.000005`.
fn of_day(word: &str) -> Option<i64> {
    let mut parts = word.splitn(3, ':');
    let mut two = || parts.next().filter(|part| part.len() == 2)?.parse::<u8>().ok().map(i64::from);
    let (hours, minutes) = (two()?, two()?);
    let rest = parts.next()?;
    let ns = if rest.contains('.') { seconds(rest)? } else { rest.parse::<u8>().ok().map(i64::from)? * SECOND };
    (hours < 24 && minutes < 60 && ns <= 60 * SECOND).then_some((hours * 60 + minutes) * 60 * SECOND + ns)
}

/// Parses `1700000000.000123`, or whole seconds, which are greater than any thread id.
fn since_epoch(word: &str) -> Option<i64> {
    if word.contains('.') {
        return seconds(word);
    }
    let whole: i64 = word.parse().ok().filter(|whole| *whole > i64::from(MOST_THREAD))?;
    whole.checked_mul(SECOND)
}

/// Converts decimal seconds to ns.
pub(super) fn seconds(word: &str) -> Option<i64> {
    let (whole, part) = word.split_once('.')?;
    if whole.is_empty() || part.is_empty() || part.len() > 9 || !part.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let whole: i64 = whole.parse().ok().filter(|whole| *whole >= 0)?;
    let part: i64 = format!("{part:0<9}").parse().ok()?;
    whole.checked_mul(SECOND)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_goes_on_at_midnight_and_small_steps_back_are_none() {
        let mut clock = CallClock::default();
        let mut at = |word| clock.at(stamp_of(&format!("{word} x")).unwrap().0);
        let first = at("23:59:59.5");
        assert_eq!(at("00:00:00.5") - first, SECOND);
        assert_eq!(at("00:00:00.4") - first, SECOND - SECOND / 10);
        for text in ["25:00:00 x", "12:60:00 x", "1:2:3 x", "12:00 x", "1. x", "7 x", "x"] {
            assert_eq!(stamp_of(text), None, "{text}");
        }
    }
}
