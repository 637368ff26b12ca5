//! Requests that are planned but not complete, with the changes that each will make.

/// The change that a request makes when it is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestEffect {
    /// Its blocks are at the places where it wrote them; the next flush records that.
    #[default]
    Written,
    /// The same, and its own record already states it.
    Recorded,
    /// Its blocks are discarded; the next flush records that.
    Discarded,
    /// The same, and its own record already states it.
    Erased,
    /// It changes nothing except what its records state.
    Nothing,
}

/// Consecutive blocks: first block, first place, number of blocks.
pub(super) type Blocks = (u32, u32, u32);

/// A request in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct LfsRequest {
    pub id: u64,
    pub effect: RequestEffect,
    /// Blocks that it changes: first and end.
    pub first: u32,
    pub end: u32,
    /// Number of the write.
    pub write: u64,
    /// The log to which no other request may write until this one is complete, because it reads before it writes.
    pub locks: Option<usize>,
    /// The number of the last change that is recorded when it is complete, and the segment of the log of records with its last
    /// record.
    pub records: Option<(u64, u64)>,
    pub blocks: Vec<Blocks>,
    /// Places that it writes, for data, records or padding: first place and number of blocks.
    pub allocated: Vec<(u32, u32)>,
}

/// All requests in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct LfsRequestTable {
    all: Vec<LfsRequest>,
    /// Kept to reuse their memory.
    spare: Vec<LfsRequest>,
}

impl LfsRequestTable {
    /// Creates the entry of a new request, which is not in progress yet.
    pub fn begin(&mut self, id: u64, effect: RequestEffect, (first, end): (u32, u32), write: u64) -> LfsRequest {
        let mut flight = self.spare.pop().unwrap_or_default();
        flight.blocks.clear();
        flight.allocated.clear();
        LfsRequest { id, effect, first, end, write, locks: None, records: None, ..flight }
    }

    /// Adds a request that is now in progress.
    pub fn add(&mut self, flight: LfsRequest) {
        self.all.push(flight);
    }

    /// Removes and returns a request that is complete.
    pub fn take(&mut self, id: u64) -> Option<LfsRequest> {
        let place = self.all.iter().position(|flight| flight.id == id)?;
        Some(self.all.swap_remove(place))
    }

    /// Takes back an entry to reuse its memory.
    pub fn recycle(&mut self, flight: LfsRequest) {
        self.spare.push(flight);
    }

    /// Whether a request in progress changes any of these blocks.
    pub fn change(&self, first: u32, end: u32) -> bool {
        self.all.iter().any(|flight| flight.first < end && first < flight.end)
    }

    /// Whether a request in progress blocks other writes to a log.
    pub fn lock(&self, log: usize) -> bool {
        self.all.iter().any(|flight| flight.locks == Some(log))
    }

    /// Whether a request in progress is its own record.
    pub fn records_itself(&self) -> bool {
        self.all.iter().any(|flight| matches!(flight.effect, RequestEffect::Recorded | RequestEffect::Erased))
    }
}
