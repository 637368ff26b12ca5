//! The interface of readers: the requests in a file in the order of the file, with names, counts and progress.

use crate::{Batch, EventTally, Ledger, NameTable, Request, Result, Sector, TraceHeader, formats::FormatTimes};

/// Progress of a reader, in bytes of the (possibly compressed) input.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadProgress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes in total; `None` if unknown.
    pub total: Option<u64>,
}

/// Properties of a whole trace that are known before its requests are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceExtent {
    /// End of the address range: no request ends after this sector.
    pub end: Sector,
    /// Number of requests without a recorded completion.
    pub without_completion: u64,
    /// Whether it is certain that all requests have the same device.
    pub one_device: bool,
}

/// A stream of requests in the order of the file; each format implements it.
pub trait TraceSource: Send {
    /// Appends some requests, at most about [`crate::BATCH_ROWS`]; returns false at the end of the input. Fails at the first
    /// invalid record, unless invalid records are skipped.
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool>;
    /// Names of the processes and devices read so far.
    fn names(&self) -> (&NameTable, &NameTable);
    /// The counts so far; [`crate::TraceReader`] adds `kept` and `reordered`.
    fn ledger(&self) -> Ledger;
    /// The origin of the trace.
    fn header(&self) -> TraceHeader;
    /// Progress of reading the input.
    fn progress(&self) -> ReadProgress;
    /// The next batch, for formats whose files contain batches in order of arrival; `None` for other formats. [`crate::TraceReader`] does
    /// not sort the batches of such formats. Fails as [`TraceSource::fill`].
    fn next_sorted(&mut self) -> Option<Result<Option<Batch>>> {
        None
    }
    /// Whether requests are returned in the order in which the file contains them. False for formats that combine several events into a
    /// request, because a request is then returned when it is complete.
    fn in_file_order(&self) -> bool {
        true
    }
    /// The unit and meaning of the times in this file; `None` if they are those of its format.
    fn times(&self) -> Option<FormatTimes> {
        None
    }
    /// Counts of the events in the recording, for formats that combine events into requests.
    fn tally(&self) -> EventTally {
        EventTally::default()
    }
    /// The number of requests of the whole trace if the file states that it is a part of one; otherwise `None`.
    fn requests_of_whole_trace(&self) -> Option<u64> {
        None
    }
    /// The extent of the trace, for formats that store it.
    fn extent(&self) -> Option<TraceExtent> {
        None
    }
}
