//! The requests that a layer has planned and that are not yet complete.

use std::collections::VecDeque;

use emmclab_base::Op;

use crate::request::HostRequest;

/// Requests in flight at a layer, oldest first.
#[derive(Clone, Debug, Default)]
pub struct InFlightRequests {
    requests: VecDeque<HostRequest>,
}

impl InFlightRequests {
    /// Adds a request that has been planned.
    pub fn insert(&mut self, request: &HostRequest) {
        // A deferred request is older than requests that were planned in the meantime.
        let after = self.requests.iter().rev().take_while(|other| other.id > request.id).count();
        self.requests.insert(self.requests.len() - after, *request);
    }

    /// Removes a request that is complete.
    pub fn remove(&mut self, id: u64) {
        if let Some(place) = self.requests.iter().position(|request| request.id == id) {
            self.requests.remove(place);
        }
    }

    /// Whether no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Number of the oldest request in flight.
    pub fn oldest(&self) -> Option<u64> {
        self.requests.front().map(|request| request.id)
    }

    /// Number of the newest request in flight.
    pub fn newest(&self) -> Option<u64> {
        self.requests.back().map(|request| request.id)
    }

    /// Whether a request in flight writes or discards between two sectors.
    pub fn changes(&self, sector: u64, end: u64) -> bool {
        self.requests.iter().any(|request| request.op != Op::Read && request.sector < end && sector < request.end())
    }
}
