//! What a device does, declared once. Measurement, checker and reports all read this stream.

use emmclab_trace::Op;

/// Why a page was read or programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// The host asked for it.
    Host = 0,
    /// The rest of a page or unit that the host overwrote in part (read-modify-write).
    Merge = 1,
    /// Garbage collection moved it.
    Gc = 2,
    /// Wear levelling moved it.
    Wear = 3,
    /// The mapping scheme keeps its map there.
    Map = 4,
}

impl Cause {
    /// All causes, in the order of their codes.
    pub const ALL: [Cause; 5] = [Cause::Host, Cause::Merge, Cause::Gc, Cause::Wear, Cause::Map];

    /// Name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Host => "host",
            Cause::Merge => "merge",
            Cause::Gc => "gc",
            Cause::Wear => "wear",
            Cause::Map => "map",
        }
    }
}

/// Where the response time of a request went, in ns: the parts of its last subrequest, which add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Behind other requests.
    pub queue_ns: i64,
    /// In the controller and between host and device.
    pub controller_ns: i64,
    /// On the flash bus, waiting for it included.
    pub bus_ns: i64,
    /// In the flash array.
    pub array_ns: i64,
    /// Behind garbage collection.
    pub gc_ns: i64,
    /// For the device to wake up.
    pub wake_up_ns: i64,
}

/// A request is complete. Times in ns on the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCompleted {
    /// Its number, counted from 0 in order of submission.
    pub id: u64,
    /// What it did.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// When it came.
    pub arrival: i64,
    /// When the device began to work on it.
    pub start: i64,
    /// When it was done.
    pub complete: i64,
    /// Page operations it took on the flash.
    pub subrequests: u32,
    /// Where the time went.
    pub waits: Waits,
}

/// A page was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRead {
    /// Block, counted over the device.
    pub block: u32,
    /// Page in the block.
    pub page: u32,
    /// Why.
    pub cause: Cause,
    /// When its unit began, ns.
    pub begin: i64,
    /// When the data was out, ns.
    pub end: i64,
}

/// A map unit in a programmed page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitWritten {
    /// Its logical number.
    pub logical: u32,
    /// The slot that the sectors not in `covered` were taken from; `None` where there was no data.
    pub from: Option<u32>,
    /// Sectors that came from the host, one bit each from the lowest.
    pub covered: u32,
}

/// A page was programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageProgrammed<'a> {
    /// Block, counted over the device.
    pub block: u32,
    /// Page in the block.
    pub page: u32,
    /// Why.
    pub cause: Cause,
    /// What it holds, slot by slot; slots after the last are left empty.
    pub units: &'a [UnitWritten],
    /// When its unit began, ns.
    pub begin: i64,
    /// When the cells were written, ns.
    pub end: i64,
}

/// A block was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockErased {
    /// Block, counted over the device.
    pub block: u32,
    /// Erases it has seen, with this one.
    pub erases: u32,
    /// When the erase began, ns.
    pub begin: i64,
    /// When it was done, ns.
    pub end: i64,
}

/// A block reached its erase limit and is used no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRetired {
    /// Block, counted over the device.
    pub block: u32,
}

/// Collection of a block began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcStarted {
    /// The victim.
    pub block: u32,
    /// Valid units in it.
    pub valid: u32,
    /// `Gc` or `Wear`.
    pub cause: Cause,
    /// When, ns.
    pub at: i64,
}

/// Collection of a block ended with its erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcFinished {
    /// The victim.
    pub block: u32,
    /// Valid units when it was chosen.
    pub valid: u32,
    /// When, ns.
    pub at: i64,
}

/// Units hold nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// First logical unit.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Written data of a unit came into the volatile cache; it is durable only once it is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitCached {
    /// Its logical number.
    pub logical: u32,
    /// Sectors that came, one bit each from the lowest.
    pub covered: u32,
    /// When there was room, ns.
    pub at: i64,
}

/// The device woke up for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WokeUp {
    /// When the request came, ns.
    pub at: i64,
    /// How long it took, ns.
    pub took: i64,
}

/// Listens to a device. Every method does nothing unless overridden.
pub trait Observer {
    /// Whether page programs are told with their units; off, they need not be put together.
    const UNITS: bool = true;

    /// A request is complete; told in order of arrival.
    #[inline]
    fn request_completed(&mut self, _event: &RequestCompleted) {}
    /// A page was read.
    #[inline]
    fn page_read(&mut self, _event: &PageRead) {}
    /// A page was programmed.
    #[inline]
    fn page_programmed(&mut self, _event: &PageProgrammed<'_>) {}
    /// A block was erased.
    #[inline]
    fn block_erased(&mut self, _event: &BlockErased) {}
    /// A block went bad.
    #[inline]
    fn block_retired(&mut self, _event: &BlockRetired) {}
    /// A collection began.
    #[inline]
    fn gc_started(&mut self, _event: &GcStarted) {}
    /// A collection ended.
    #[inline]
    fn gc_finished(&mut self, _event: &GcFinished) {}
    /// Data was discarded.
    #[inline]
    fn trimmed(&mut self, _event: &Trimmed) {}
    /// The device woke up.
    #[inline]
    fn woke_up(&mut self, _event: &WokeUp) {}
    /// Written data came into the volatile cache.
    #[inline]
    fn unit_cached(&mut self, _event: &UnitCached) {}
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Observer for Quiet {
    const UNITS: bool = false;
}

/// A listener that is told everything but completions, which `completed` takes in its place.
pub struct OnCompletion<'a, O, F> {
    /// The listener.
    pub observer: &'a mut O,
    /// What is done with the completion of a request; it may tell the listener of another.
    pub completed: F,
}

impl<O: Observer, F: FnMut(&mut O, &RequestCompleted)> Observer for OnCompletion<'_, O, F> {
    const UNITS: bool = O::UNITS;

    #[inline]
    fn request_completed(&mut self, event: &RequestCompleted) {
        (self.completed)(self.observer, event);
    }
    #[inline]
    fn page_read(&mut self, event: &PageRead) {
        self.observer.page_read(event);
    }
    #[inline]
    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        self.observer.page_programmed(event);
    }
    #[inline]
    fn block_erased(&mut self, event: &BlockErased) {
        self.observer.block_erased(event);
    }
    #[inline]
    fn block_retired(&mut self, event: &BlockRetired) {
        self.observer.block_retired(event);
    }
    #[inline]
    fn gc_started(&mut self, event: &GcStarted) {
        self.observer.gc_started(event);
    }
    #[inline]
    fn gc_finished(&mut self, event: &GcFinished) {
        self.observer.gc_finished(event);
    }
    #[inline]
    fn trimmed(&mut self, event: &Trimmed) {
        self.observer.trimmed(event);
    }
    #[inline]
    fn woke_up(&mut self, event: &WokeUp) {
        self.observer.woke_up(event);
    }
    #[inline]
    fn unit_cached(&mut self, event: &UnitCached) {
        self.observer.unit_cached(event);
    }
}

/// Two listeners at once.
impl<A: Observer, B: Observer> Observer for (&mut A, &mut B) {
    const UNITS: bool = A::UNITS || B::UNITS;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what no listener asks of the event is then never made")]
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.request_completed(event);
        self.1.request_completed(event);
    }
    #[inline]
    fn page_read(&mut self, event: &PageRead) {
        self.0.page_read(event);
        self.1.page_read(event);
    }
    #[inline]
    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        self.0.page_programmed(event);
        self.1.page_programmed(event);
    }
    #[inline]
    fn block_erased(&mut self, event: &BlockErased) {
        self.0.block_erased(event);
        self.1.block_erased(event);
    }
    #[inline]
    fn block_retired(&mut self, event: &BlockRetired) {
        self.0.block_retired(event);
        self.1.block_retired(event);
    }
    #[inline]
    fn gc_started(&mut self, event: &GcStarted) {
        self.0.gc_started(event);
        self.1.gc_started(event);
    }
    #[inline]
    fn gc_finished(&mut self, event: &GcFinished) {
        self.0.gc_finished(event);
        self.1.gc_finished(event);
    }
    #[inline]
    fn trimmed(&mut self, event: &Trimmed) {
        self.0.trimmed(event);
        self.1.trimmed(event);
    }
    #[inline]
    fn woke_up(&mut self, event: &WokeUp) {
        self.0.woke_up(event);
        self.1.woke_up(event);
    }
    #[inline]
    fn unit_cached(&mut self, event: &UnitCached) {
        self.0.unit_cached(event);
        self.1.unit_cached(event);
    }
}
