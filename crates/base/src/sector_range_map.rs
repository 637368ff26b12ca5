//! A map from ranges of sectors to values.

use std::collections::BTreeMap;

/// A map from sectors to values. Consecutive sectors with equal values are one entry (a run), so that memory and time depend on
/// the number of runs, not on the number of sectors.
#[derive(Clone, Debug)]
pub struct SectorRangeMap<T> {
    /// The end and value of each run, by its first sector. Runs do not overlap, and adjacent runs have different values.
    runs: BTreeMap<u64, (u64, T)>,
    /// An empty vector that is kept so that its memory can be reused.
    spare: Vec<(u64, u64, T)>,
}

impl<T> Default for SectorRangeMap<T> {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), spare: Vec::new() }
    }
}

impl<T> SectorRangeMap<T> {
    /// Number of runs in the map.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether no sector has a value.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The value of a sector.
    pub fn get(&self, sector: u64) -> Option<&T> {
        let (_, (end, value)) = self.runs.range(..=sector).next_back()?;
        (sector < *end).then_some(value)
    }

    /// All runs in order: first sector, end, value.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &T)> {
        self.runs.iter().map(|(first, (end, value))| (*first, *end, value))
    }

    /// The values of all runs, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.runs.values_mut().map(|(_, value)| value)
    }

    /// The runs in `first..end`, in order. Runs that extend beyond the range are cut off at its ends.
    pub fn find(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64, &T)> {
        let before = self.runs.range(..first).next_back();
        let runs = before.into_iter().chain(self.runs.range(first..end.max(first)));
        runs.map(move |(from, (to, value))| ((*from).max(first), (*to).min(end), value)).filter(|(from, to, _)| from < to)
    }

    /// The runs and gaps in `first..end`, in order. Those that extend beyond the range are cut off at its ends.
    pub fn parts(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64, Option<&T>)> {
        let mut at = first;
        let mut runs = self.find(first, end).peekable();
        std::iter::from_fn(move || {
            let from = at;
            if from >= end {
                return None;
            }
            if let Some((_, to, value)) = runs.next_if(|(begin, ..)| *begin == from) {
                at = to;
                return Some((from, to, Some(value)));
            }
            at = runs.peek().map_or(end, |(begin, ..)| *begin);
            Some((from, at, None))
        })
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.runs.clear();
    }
}

impl<T: Clone + PartialEq> SectorRangeMap<T> {
    /// Sets the value of the sectors `first..end`.
    pub fn set(&mut self, first: u64, end: u64, value: T) {
        if first >= end {
            return;
        }
        let taken = self.take(first, end);
        self.spare = taken;
        self.insert_run(first, end, value);
        self.join(end);
    }

    /// Removes the values of the sectors `first..end`.
    pub fn remove(&mut self, first: u64, end: u64) {
        if first < end {
            let taken = self.take(first, end);
            self.spare = taken;
        }
    }

    /// Replaces the value of each run and each gap in `first..end` by the result of `change`; the value of a gap is `None`.
    pub fn update(&mut self, first: u64, end: u64, mut change: impl FnMut(Option<T>) -> Option<T>) {
        if first >= end {
            return;
        }
        let mut taken = self.take(first, end);
        let mut at = first;
        for (from, to, value) in taken.drain(..) {
            if at < from
                && let Some(new) = change(None)
            {
                self.insert_run(at, from, new);
            }
            if let Some(new) = change(Some(value)) {
                self.insert_run(from, to, new);
            }
            at = to;
        }
        if at < end
            && let Some(new) = change(None)
        {
            self.insert_run(at, end, new);
        }
        self.spare = taken;
        self.join(end);
    }

    /// Removes the runs of `first..end` and returns them in order.
    fn take(&mut self, first: u64, end: u64) -> Vec<(u64, u64, T)> {
        let mut taken = std::mem::take(&mut self.spare);
        taken.clear();
        self.split(first);
        self.split(end);
        while let Some(from) = self.runs.range(first..end).next().map(|(from, _)| *from) {
            if let Some((to, value)) = self.runs.remove(&from) {
                taken.push((from, to, value));
            }
        }
        taken
    }

    /// Splits the run that contains `sector` in its interior, if there is one.
    fn split(&mut self, sector: u64) {
        let Some((_, run)) = self.runs.range_mut(..sector).next_back() else { return };
        if run.0 > sector {
            let rest = run.clone();
            run.0 = sector;
            self.runs.insert(sector, rest);
        }
    }

    /// Inserts a run into a gap. If the previous run ends at `first` and has an equal value, that run is extended instead.
    fn insert_run(&mut self, first: u64, end: u64, value: T) {
        if let Some((_, before)) = self.runs.range_mut(..first).next_back()
            && before.0 == first
            && before.1 == value
        {
            before.0 = end;
        } else {
            self.runs.insert(first, (end, value));
        }
    }

    /// Joins the two runs that meet at `sector` if their values are equal.
    fn join(&mut self, sector: u64) {
        let Some((end, value)) = self.runs.get(&sector) else { return };
        let end = *end;
        if let Some((_, before)) = self.runs.range(..sector).next_back()
            && before.0 == sector
            && before.1 == *value
        {
            self.runs.remove(&sector);
            if let Some((_, before)) = self.runs.range_mut(..sector).next_back() {
                before.0 = end;
            }
        }
    }
}
