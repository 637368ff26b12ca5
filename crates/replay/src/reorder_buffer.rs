//! Reports completions in order of arrival; they may become known in any order.

use std::collections::VecDeque;

use emmclab_device::RequestCompleted;

/// Keeps completions until all requests before them are complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReorderBuffer {
    /// Number of the request that is reported next.
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

    /// The completions after a request that will never complete, in order of arrival.
    pub fn into_remaining(self) -> impl Iterator<Item = RequestCompleted> {
        self.completions.into_iter().flatten()
    }
}
