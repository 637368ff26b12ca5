//! Counts the events of a recording by name, so that the error for a trace without requests can list them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// Maximum number of names that are counted separately; the events of all further names are counted together.
const MOST_NAMES: usize = 1 << 10;

/// Counts of the events of a recording by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTally {
    counts: Vec<(String, u64)>,
    /// The tracer that the recording names (`# tracer: function`), if any.
    pub tracer: Option<String>,
    /// The packets of programs in words, if any.
    pub packets: Option<String>,
    /// The hint that names missing parts of the recording; `None` if none is missing.
    pub missing: Option<String>,
}

impl EventTally {
    /// Builds the counts, most frequent first. The counts of equal names are added up, and names with a count of 0 are left
    /// out.
    pub fn new<N: Into<String>>(counts: impl IntoIterator<Item = (N, u64)>) -> Self {
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            *by_name.entry(name.into()).or_default() += count;
        }
        let mut counts: Vec<(String, u64)> = by_name.into_iter().collect();
        counts.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
        Self { counts, ..Self::default() }
    }

    /// Names and counts, most frequent first.
    pub fn counts(&self) -> &[(String, u64)] {
        &self.counts
    }

    /// Number of events of this name.
    pub fn of(&self, name: &str) -> u64 {
        self.counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    }

    /// Whether no event was seen.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// Counts events by name while they are read, and stores the meaning of each name.
#[derive(Debug)]
pub(crate) struct NameCounts<M> {
    entries: Vec<NameCountEntry<M>>,
    index_of_name: FxHashMap<Box<[u8]>, usize>,
    last: usize,
    others: u64,
}

#[derive(Debug)]
struct NameCountEntry<M> {
    name: Box<[u8]>,
    count: u64,
    meaning: M,
}

impl<M> Default for NameCounts<M> {
    fn default() -> Self {
        Self { entries: Vec::new(), index_of_name: FxHashMap::default(), last: 0, others: 0 }
    }
}

/// A name in [`NameCounts`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameIndex(usize);

impl<M: Copy> NameCounts<M> {
    /// The place of this name and its meaning; `find` is called once for each name. Does not count an event.
    #[inline]
    pub(crate) fn name_index(&mut self, name: &[u8], find: impl FnOnce(&[u8]) -> M) -> (NameIndex, M) {
        match self.entries.get(self.last) {
            Some(known) if *known.name == *name => (NameIndex(self.last), known.meaning),
            _ => self.look_up_name(name, find),
        }
    }

    fn look_up_name(&mut self, name: &[u8], find: impl FnOnce(&[u8]) -> M) -> (NameIndex, M) {
        let place = match self.index_of_name.get(name) {
            Some(place) => *place,
            None if self.entries.len() == MOST_NAMES => return (NameIndex(MOST_NAMES), find(name)),
            None => {
                let (name, meaning) = (Box::<[u8]>::from(name), find(name));
                self.index_of_name.insert(name.clone(), self.entries.len());
                self.entries.push(NameCountEntry { name, count: 0, meaning });
                self.entries.len() - 1
            }
        };
        self.last = place;
        (NameIndex(place), self.entries[place].meaning)
    }

    /// Counts one event of the name at this place.
    #[inline]
    pub(crate) fn add(&mut self, place: NameIndex) {
        match self.entries.get_mut(place.0) {
            Some(known) => known.count += 1,
            None => self.others += 1,
        }
    }

    /// Names and counts so far.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        let known = self.entries.iter().map(|known| (String::from_utf8_lossy(&known.name).into_owned(), known.count));
        known.chain([("of further names".to_owned(), self.others)])
    }

    /// The counts so far.
    pub(crate) fn tally(&self) -> EventTally {
        EventTally::new(self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_and_sorted_by_frequency() {
        let mut counts = NameCounts::default();
        for name in ["sched_switch", "block_rq_issue", "sched_switch", "sched_switch"] {
            let (place, length) = counts.name_index(name.as_bytes(), <[u8]>::len);
            assert_eq!(length, name.len());
            counts.add(place);
        }
        let tally = counts.tally();
        assert_eq!(tally.counts(), [("sched_switch".to_owned(), 3), ("block_rq_issue".to_owned(), 1)]);
        assert_eq!((tally.of("sched_switch"), tally.of("sched_wakeup")), (3, 0));
    }

    #[test]
    fn names_without_end_do_not_fill_the_memory() {
        let mut counts = NameCounts::default();
        for number in 0..10_000 {
            let (place, ()) = counts.name_index(format!("event_{number}").as_bytes(), |_| ());
            counts.add(place);
        }
        assert_eq!(counts.tally().counts().len(), MOST_NAMES + 1);
        assert_eq!(counts.tally().of("of further names"), 10_000 - MOST_NAMES as u64);
    }
}
