//! Waits of a thread of one kind: those whose cause is not in the recording, or its time asleep.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How long a thread waited, itself or through threads that it waited for.
#[derive(Debug, Default)]
pub(super) struct CallWaits {
    /// Time by the name of the call, in ns.
    by_call: BTreeMap<String, i64>,
    /// Begin and end of each wait, in order of their ends, in ns since the epoch of the recording.
    spans: Vec<(i64, i64)>,
}

impl CallWaits {
    /// Adds a wait in a call.
    pub fn add(&mut self, call: &str, begun: i64, ended: i64) {
        *self.by_call.entry(call.to_owned()).or_default() += ended - begun;
        self.spans.push((begun, ended));
    }

    /// Subtracts up to `ns` from the last waits in a call, because they turned out to be something else; returns the subtracted time in ns.
    pub fn take_back(&mut self, call: &str, ns: i64) -> i64 {
        let Some(known) = self.by_call.get_mut(call) else { return 0 };
        let all = ns.min(*known);
        *known -= all;
        let mut ns = all;
        while let Some((begun, ended)) = self.spans.last_mut() {
            let taken = ns.min(*ended - *begun);
            *ended -= taken;
            ns -= taken;
            if ended > begun {
                break;
            }
            self.spans.pop();
        }
        all
    }

    /// The parts of the waits between two times, in order of their ends.
    pub fn between(&self, begun: i64, ended: i64) -> Vec<(i64, i64)> {
        let mut found: Vec<_> = (self.spans.iter().rev())
            .take_while(|span| span.1 > begun)
            .map(|span| (span.0.max(begun), span.1.min(ended)))
            .filter(|span| span.0 < span.1)
            .collect();
        found.reverse();
        found
    }

    /// The time of all waits, in ns.
    pub fn total(&self) -> i64 {
        self.by_call.values().sum()
    }

    /// The calls that waited longest, at most `most` of them, with their times in ns.
    pub fn longest(&self, most: usize) -> Vec<(&str, i64)> {
        let mut calls: Vec<_> = self.by_call.iter().map(|(call, ns)| (call.as_str(), *ns)).collect();
        calls.retain(|(_, ns)| *ns > 0);
        calls.sort_by_key(|(_, ns)| Reverse(*ns));
        calls.truncate(most);
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_taken_between_two_times_and_given_back_from_the_end() {
        let mut waits = CallWaits::default();
        waits.add("poll", 10, 20);
        waits.add("ioctl", 30, 60);
        assert_eq!(waits.between(15, 40), [(15, 20), (30, 40)]);
        assert_eq!(waits.between(20, 30), []);
        assert_eq!(waits.longest(1), [("ioctl", 30)]);
        assert_eq!(waits.take_back("ioctl", 30), 30);
        assert_eq!(waits.take_back("poll", 4), 4);
        assert_eq!((waits.total(), waits.between(0, 100)), (6, vec![(10, 16)]));
        assert_eq!((waits.take_back("never", 6), waits.take_back("poll", 9), waits.total()), (0, 6, 0));
    }
}
