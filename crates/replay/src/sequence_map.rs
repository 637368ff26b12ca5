//! Collections of values with consecutive numbers. Values are removed in any order, or in order of arrival.

use std::collections::VecDeque;

use emmclab_device::RequestCompleted;

/// Values by number. Numbers are assigned in the order of insertion.
#[derive(Clone, Debug)]
pub(crate) struct SequenceMap<T> {
    /// Number of the first stored value.
    first: u64,
    values: VecDeque<Option<T>>,
}

impl<T> Default for SequenceMap<T> {
    fn default() -> Self {
        Self { first: 0, values: VecDeque::new() }
    }
}

impl<T> SequenceMap<T> {
    /// An empty map. The first value gets the number `first`.
    pub fn starting_at(first: u64) -> Self {
        Self { first, values: VecDeque::new() }
    }

    /// Adds a value. Returns its number.
    pub fn push(&mut self, value: T) -> u64 {
        self.values.push_back(Some(value));
        self.first + self.values.len() as u64 - 1
    }

    /// The value with this number; `None` if it was removed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let index = number.checked_sub(self.first)?;
        self.values.get_mut(index as usize)?.as_mut()
    }

    /// Removes and returns the value with this number.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let index = number.checked_sub(self.first)?;
        let value = self.values.get_mut(index as usize)?.take();
        while matches!(self.values.front(), Some(None)) {
            self.values.pop_front();
            self.first += 1;
        }
        value
    }
}

/// Stores completions until all earlier requests are complete, to report them in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReorderBuffer {
    /// Number of the next request to report.
    next: u64,
    completions: VecDeque<Option<RequestCompleted>>,
}

impl ReorderBuffer {
    /// Adds the known completion of request `event.id`.
    pub fn insert(&mut self, event: RequestCompleted) {
        let Some(index) = event.id.checked_sub(self.next) else { return };
        let index = index as usize;
        if index >= self.completions.len() {
            self.completions.resize(index + 1, None);
        }
        self.completions[index] = Some(event);
    }

    /// Removes and returns the next completion in order of arrival, if it is known.
    pub fn pop(&mut self) -> Option<RequestCompleted> {
        let event = (*self.completions.front()?)?;
        self.completions.pop_front();
        self.next += 1;
        Some(event)
    }

    /// Returns the completions that are still stored, in order of arrival. They wait for an earlier request that will never complete.
    pub fn into_remaining(self) -> impl Iterator<Item = RequestCompleted> {
        self.completions.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_once_whatever_the_order() {
        let mut numbered = SequenceMap::default();
        assert_eq!([numbered.push('a'), numbered.push('b'), numbered.push('c')], [0, 1, 2]);
        assert_eq!((numbered.take(1), numbered.take(1), numbered.take(9)), (Some('b'), None, None));
        assert_eq!((numbered.take(0), numbered.take(0)), (Some('a'), None));
        assert_eq!((numbered.push('d'), numbered.get_mut(2).copied()), (3, Some('c')));
        assert_eq!((numbered.take(3), numbered.take(2)), (Some('d'), Some('c')));
        assert!(numbered.values.is_empty());
    }
}
