//! The slots of the command queue (the tags of a UFS), and when each is free.

use emmclab_base::Nanos;

/// The times at which slots become free, in order: a ring that begins with the earliest. [`Nanos::MAX`] is used for a command whose
/// completion is not known. Commands mostly complete in the order of arrival, so a new time belongs near the end of the ring.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandSlots {
    free: Vec<Nanos>,
    /// Index of the earliest time.
    first: usize,
}

impl CommandSlots {
    pub fn new(count: usize) -> Self {
        Self { free: vec![Nanos::MIN; count], first: 0 }
    }

    /// Makes all slots free.
    pub fn rewind(&mut self) {
        self.free.fill(Nanos::MIN);
    }

    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// The earliest time at which a slot is free; [`Nanos::MIN`] if there are no slots.
    #[inline]
    pub fn first_free(&self) -> Nanos {
        self.free.get(self.first).copied().unwrap_or(Nanos::MIN)
    }

    /// Occupies the slot that is free first, until `until`.
    #[inline]
    pub fn take(&mut self, until: Nanos) {
        let last = self.first;
        let Some(slot) = self.free.get_mut(last) else { return };
        *slot = until;
        self.first = if last + 1 == self.free.len() { 0 } else { last + 1 };
        self.sort_in(last);
    }

    /// Releases at `at` one of the slots whose completion is not known, which are the last in the ring.
    pub fn release(&mut self, at: Nanos) {
        let last = self.before(self.first);
        self.free[last] = at;
        self.sort_in(last);
    }

    /// Number of slots that are not free at `at`.
    #[inline]
    pub fn in_use(&self, at: Nanos) -> u32 {
        let (late, early) = self.free.split_at(self.first);
        let free = |slots: &[Nanos]| slots.partition_point(|free| *free <= at);
        (self.free.len() - free(early) - free(late)) as u32
    }

    #[inline]
    fn before(&self, index: usize) -> usize {
        if index == 0 { self.free.len() - 1 } else { index - 1 }
    }

    /// Moves the last time of the ring before those that are later.
    #[inline]
    fn sort_in(&mut self, last: usize) {
        let mut index = last;
        while index != self.first {
            let before = self.before(index);
            if self.free[before] <= self.free[index] {
                break;
            }
            self.free.swap(before, index);
            index = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list_of_which_the_least_is_taken(
            count in 0..6usize,
            steps in prop::collection::vec((0..4u8, 0..50i64), 0..60),
        ) {
            let (mut slots, mut plain) = (CommandSlots::new(count), vec![Nanos::MIN; count]);
            for (step, time) in steps {
                let (time, held) = (Nanos(time), plain.iter().position(|free| *free == Nanos::MAX));
                match (step, held) {
                    (0, Some(held)) => {
                        slots.release(time);
                        plain[held] = time;
                    }
                    (0 | 1, _) => {
                        let until = if step == 0 { Nanos::MAX } else { time };
                        slots.take(until);
                        if let Some(slot) = plain.iter_mut().min() {
                            *slot = until;
                        }
                    }
                    (2, _) => {
                        let in_use = plain.iter().filter(|free| **free > time).count();
                        prop_assert_eq!(slots.in_use(time) as usize, in_use);
                    }
                    _ => {}
                }
                prop_assert_eq!(slots.len(), count);
                prop_assert_eq!(slots.first_free(), plain.iter().copied().min().unwrap_or(Nanos::MIN));
            }
        }
    }
}
