//! The reader of a file of one format: requests in the order of the file, with names, counts and progress.

use emmclab_base::{Request, Result, Sector};

use crate::batch::Batch;
use crate::formats::Times;
use crate::header::Header;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::tally::Tally;

/// Progress of a reader, in bytes of the (possibly compressed) input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes in all, where known.
    pub total: Option<u64>,
}

/// The extent of a trace, known before its requests are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// No request ends after this sector.
    pub end: Sector,
    /// Requests without a recorded completion.
    pub without_completion: u64,
    /// Whether all requests are certainly to one device.
    pub one_device: bool,
}

/// A stream of requests in the order of the file; what each format implements.
pub trait Source: Send {
    /// Appends some requests, at most about [`crate::BATCH_ROWS`]; false at the end of the input.
    ///
    /// # Errors
    /// At the first bad record, unless reading is lenient.
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool>;
    /// Names of processes and devices met so far.
    fn names(&self) -> (&Names, &Names);
    /// Counts so far; `kept` and `reordered` are added by the reader.
    fn ledger(&self) -> Ledger;
    /// Where the trace comes from.
    fn header(&self) -> Header;
    /// Progress through the input.
    fn progress(&self) -> Progress;
    /// The next batch in order of arrival, for formats that hold such batches; [`crate::TraceReader`] then sorts nothing.
    ///
    /// # Errors
    /// As [`Source::fill`].
    fn next_sorted(&mut self) -> Option<Result<Option<Batch>>> {
        None
    }
    /// Whether requests come in the order in which they were recorded; not where they are matched from events, which ends
    /// late those that are long open.
    fn in_file_order(&self) -> bool {
        true
    }
    /// How this file states times, where that differs from what its format says of all files.
    fn times(&self) -> Option<Times> {
        None
    }
    /// The events that the recording holds, for formats that match requests from events.
    fn tally(&self) -> Tally {
        Tally::default()
    }
    /// The requests of the whole trace, where the file says that it is a part of one.
    fn whole(&self) -> Option<u64> {
        None
    }
    /// The extent of all requests, for formats that store it.
    fn extent(&self) -> Option<Extent> {
        None
    }
}
