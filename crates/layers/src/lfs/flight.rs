//! Requests that are planned and not complete: what each will change.

/// The change that a request makes when it is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Effect {
    /// Its blocks lie where it wrote them; the next flush records that.
    #[default]
    Written,
    /// The same, and it is recorded.
    Recorded,
    /// Its blocks are nowhere; the next flush records that.
    Discarded,
    /// The same, and it is recorded.
    Erased,
    /// Nothing but what its records say.
    Nothing,
}

/// Blocks that follow each other: first block, first place, how many.
pub(super) type Blocks = (u32, u32, u32);

/// A request in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    pub id: u64,
    pub effect: Effect,
    /// Blocks that it changes.
    pub first: u32,
    pub end: u32,
    /// Number of the write.
    pub write: u64,
    /// The log whose order it holds up, because it reads before it writes.
    pub locks: Option<usize>,
    /// Changes up to this one are recorded when it is complete; and the segment of the log of records in which its last one stands.
    pub records: Option<(u64, u64)>,
    pub blocks: Vec<Blocks>,
    /// Places that it writes, of whatever: first and how many.
    pub taken: Vec<(u32, u32)>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights {
    all: Vec<Flight>,
    /// Kept to reuse their memory.
    spare: Vec<Flight>,
}

impl Flights {
    /// A new one, which is not in progress yet.
    pub fn begin(&mut self, id: u64, effect: Effect, (first, end): (u32, u32), write: u64) -> Flight {
        let mut flight = self.spare.pop().unwrap_or_default();
        flight.blocks.clear();
        flight.taken.clear();
        Flight { id, effect, first, end, write, locks: None, records: None, ..flight }
    }

    /// It is in progress.
    pub fn add(&mut self, flight: Flight) {
        self.all.push(flight);
    }

    /// It is complete.
    pub fn take(&mut self, id: u64) -> Option<Flight> {
        let place = self.all.iter().position(|flight| flight.id == id)?;
        Some(self.all.swap_remove(place))
    }

    /// It is over.
    pub fn give_back(&mut self, flight: Flight) {
        self.spare.push(flight);
    }

    /// Whether one changes blocks of these.
    pub fn change(&self, first: u32, end: u32) -> bool {
        self.all.iter().any(|flight| flight.first < end && first < flight.end)
    }

    /// Whether one holds up the order of a log.
    pub fn lock(&self, log: usize) -> bool {
        self.all.iter().any(|flight| flight.locks == Some(log))
    }

    /// Whether one is its own record.
    pub fn records_itself(&self) -> bool {
        self.all.iter().any(|flight| matches!(flight.effect, Effect::Recorded | Effect::Erased))
    }
}
