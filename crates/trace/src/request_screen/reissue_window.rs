//! The time range after its first issue in which a request may be issued again (`--reissue-window`).

use std::fmt;

use crate::duration::parse_duration;
use crate::{Error, ErrorClass, Nanos, Result};

const OPTION: &str = "--reissue-window";
/// Maximum end of the window; later, a request of the same range is more likely another one.
const LATEST: Nanos = Nanos(1_000_000_000);

/// The time from the first issue of a request to the second, as a range that includes both bounds.
///
/// The default fits a UFS link that wakes up. Other causes need other times: after `HOST_BUSY`, Linux 6.12 issues a SCSI
/// command again when another one ends, else 20 to 72 ms later, because the host stays blocked for seven tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReissueWindow {
    soonest: Nanos,
    latest: Nanos,
}

impl Default for ReissueWindow {
    fn default() -> Self {
        Self { soonest: Nanos(500_000), latest: Nanos(3_000_000) }
    }
}

impl ReissueWindow {
    /// Parses `SOONEST-LATEST`, as `0.5ms-3ms` or `0-100ms`; a number alone is in seconds.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] if the text is not such a range, or its end is more than 1 s.
    pub fn parse(text: &str) -> Result<Self> {
        let range = text.split_once('-').and_then(|(soonest, latest)| {
            Some(Self { soonest: parse_duration(soonest.trim())?, latest: parse_duration(latest.trim())? })
        });
        range.filter(|range| range.soonest < range.latest && range.latest <= LATEST).ok_or_else(|| {
            Error::new(ErrorClass::Config, "is not a range of times")
                .of_field(OPTION, 0, text.as_bytes())
                .hint("write SOONEST-LATEST with units, at most 1s, for example 0.5ms-3ms or 0-100ms")
        })
    }

    pub(super) fn latest_ns(self) -> i64 {
        self.latest.0
    }

    /// Whether a second issue this many nanoseconds after the first may be of the same request.
    #[inline]
    pub(super) fn holds(self, after_ns: i64) -> bool {
        (self.soonest.0..=self.latest.0).contains(&after_ns)
    }
}

/// In the form that [`ReissueWindow::parse`] accepts.
impl fmt::Display for ReissueWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Nanos| time.0 as f64 / 1e6;
        write!(f, "{}ms-{}ms", ms(self.soonest), ms(self.latest))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use super::*;

    #[test]
    fn a_window_is_a_range_of_times_up_to_a_second() {
        let window = ReissueWindow::parse("0-100ms").unwrap();
        assert!(window.holds(0) && window.holds(100_000_000) && !window.holds(100_000_001));
        assert_eq!(window.to_string(), "0ms-100ms");
        assert_eq!(ReissueWindow::parse("500us - 3ms").unwrap(), ReissueWindow::default());
        let shown = ReissueWindow::default().to_string();
        assert_eq!((&*shown, ReissueWindow::parse(&shown).unwrap()), ("0.5ms-3ms", ReissueWindow::default()));
        for text in ["", "3ms", "3ms-1ms", "1ms-1ms", "-3ms", "0-2s", "0.5-3ms", "a-b", "1ms-2ms-3ms"] {
            let problem = ReissueWindow::parse(text).unwrap_err();
            assert_eq!(problem.kind(), ErrorClass::Config, "{text}");
        }
    }
}
