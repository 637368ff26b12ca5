//! Opens a trace of any format and reads it as a stream of batches in order of arrival. The interface of formats: the requests in a
//! file in the order of the file, with names, counts and progress.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::{ClockMender, CoarseClock, FileClock, JUDGED};
use crate::formats::FormatTimes;
use crate::request_screen::RequestScreen;
use crate::{
    ArrivalGaps, BATCH_ROWS, Batch, BatchBuilder, ClockJump, ClockJumps, Error, ErrorClass, EventTally, JumpDirection, Ledger,
    MOST_JUMPS, MendClock, NameTable, Nanos, ReadOptions, RecognisedFormat, RecordedFeatures, Request, Result, Sector,
    TraceHeader, diagnosis, formats, interrupt,
};

/// Default number of requests that are kept back to sort them by arrival.
pub const REORDER_WINDOW: usize = 1 << 16;

/// Number of requests that are put into columns together; so few that they stay in the first-level cache.
const CACHED_ROWS: usize = 256;

/// A trace as a stream of batches in order of arrival, in bounded memory.
pub struct TraceReader {
    path: PathBuf,
    source: Box<dyn TraceSource>,
    window: usize,
    read: Vec<Request>,
    /// Full batches that are kept back.
    full: VecDeque<Batch>,
    /// The batch that is being filled.
    builder: BatchBuilder,
    /// Arrival from which the buffered requests still have to be sorted; `None` if all of them are sorted.
    in_order_to: Option<i64>,
    processes: Arc<NameTable>,
    devices: Arc<NameTable>,
    last_arrival: i64,
    /// Arrival of the last request in the order of the file, to count requests out of order.
    last_in_file: i64,
    ended: bool,
    /// Whether a trace without requests is an error; false for a part of a trace.
    needs_requests: bool,
    lenient: bool,
    kept_requests: u64,
    reordered: u64,
    guard: formats::UnitGuard,
    recognised: RecognisedFormat,
    recorded: RecordedFeatures,
    /// Operations and flags of the requests read so far, for a file that does not state what it records; `None` for other files.
    observed_features: Option<RecordedFeatures>,
    clock: ClockMonitor,
    screen: RequestScreen,
}

/// Detects jumps of a trace's clock, and removes them on request.
struct ClockMonitor {
    gaps: ArrivalGaps,
    /// Detects jumps in the order of the file.
    file: FileClock,
    in_file_order: bool,
    mending: Option<ClockMendState>,
    /// The clock of the recorder if its step is coarse; determined when `is_clock_checked` is set.
    coarse: Option<CoarseClock>,
    is_clock_checked: bool,
}

enum ClockMendState {
    /// The jumps must be detected in a first pass over the file.
    Unplanned(Box<ReadOptions>),
    Planned(Box<ClockMender>),
}

impl TraceReader {
    /// Opens `path` and recognises format and compression by the contents. Fails if the file cannot be read, is empty, or has an
    /// unknown format.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let formats::OpenedTrace { source, guard, recognised, recorded } =
            formats::open(path, options).map_err(|error| error.in_file(path))?;
        if let Some(window) = options.reissue_window.filter(|_| source.ledger().reissued.is_some()) {
            let problem = Error::new(ErrorClass::Config, "the re-issued requests are already marked in this trace");
            return Err(problem
                .of_field("--reissue-window", 0, window.to_string().as_bytes())
                .hint("apply this option when you read the original trace, before its conversion")
                .in_file(path));
        }
        Ok(Self::of_source(path, source, guard, (recognised, recorded), options))
    }

    /// Creates a reader of a source that is already open; errors contain `path`.
    pub(crate) fn of_source(
        path: &Path, source: Box<dyn TraceSource>, guard: formats::UnitGuard,
        (recognised, recorded): (RecognisedFormat, RecordedFeatures), options: &ReadOptions,
    ) -> Self {
        let in_file_order = source.in_file_order();
        let mending = options.mend_clock.map(|mend| match mend {
            MendClock::Jumps => ClockMendState::Unplanned(Box::new(options.clone())),
            MendClock::Above(limit) => ClockMendState::Planned(Box::new(ClockMender::above(limit, in_file_order))),
        });
        Self {
            clock: ClockMonitor {
                gaps: ArrivalGaps::default(),
                file: FileClock::new(in_file_order),
                in_file_order,
                mending,
                coarse: None,
                // If a file states which features it records, it also states whether its clock is coarse.
                is_clock_checked: source.header().recorded.is_some() || guard.is_loose(),
            },
            screen: RequestScreen::new(options, &source.ledger()),
            recognised,
            recorded,
            observed_features: source.header().recorded.is_none().then_some(RecordedFeatures::NONE),
            path: path.to_owned(),
            window: options.reorder_window.unwrap_or(REORDER_WINDOW),
            guard,
            source,
            read: Vec::new(),
            full: VecDeque::new(),
            builder: BatchBuilder::default(),
            in_order_to: None,
            processes: Arc::default(),
            devices: Arc::default(),
            last_arrival: i64::MIN,
            last_in_file: i64::MIN,
            ended: false,
            needs_requests: options.slice.is_none(),
            lenient: options.lenient,
            kept_requests: 0,
            reordered: 0,
        }
    }

    /// The next batch; `None` at the end. Fails at an invalid record, an implausible unit, a request too far out of order, or
    /// several devices if one is required; at the end also if no request matches a value of [`ReadOptions::only`].
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        let batch = self.next_screened().map_err(|error| error.in_file(&self.path))?;
        if let Some(batch) = &batch {
            self.kept_requests += batch.len() as u64;
            self.clock.gaps.extend(batch.arrivals());
        } else if self.kept_requests == 0 && self.needs_requests {
            let error = diagnosis::no_request(&self.source.tally(), &self.ledger(), &self.source.header(), self.lenient);
            return Err(error.in_file(&self.path));
        }
        Ok(batch)
    }

    /// The next batch that still has requests after screening.
    fn next_screened(&mut self) -> Result<Option<Batch>> {
        while let Some(batch) = self.advance()? {
            if let Some(features) = &mut self.observed_features {
                features.see(&batch.rows());
            }
            let batch = self.screen.apply(batch);
            // A trace that will be rejected is read to its end, so that the error message lists all devices.
            if !batch.is_empty() && !self.screen.refuses() {
                return Ok(Some(batch));
            }
        }
        self.screen.check()?;
        Ok(None)
    }

    fn advance(&mut self) -> Result<Option<Batch>> {
        if let Some(ClockMendState::Unplanned(options)) = &self.clock.mending {
            // The first pass uses a second source, so that `self.source` stays at its beginning.
            let mut first_pass = formats::open(&self.path, options)?.source;
            let mender = ClockMender::find_jumps(&mut *first_pass)?;
            self.clock.mending = Some(ClockMendState::Planned(Box::new(mender)));
        }
        // Times are shifted request by request, so sorted batches are not used then.
        let sorted = if self.clock.mending.is_none() { self.source.next_sorted() } else { None };
        if let Some(sorted) = sorted {
            let batch = sorted?;
            if let Some(batch) = &batch {
                self.guard.see(batch.rows());
                if !std::mem::replace(&mut self.clock.is_clock_checked, true) {
                    let first: Vec<_> = batch.iter().take(JUDGED).collect();
                    self.clock.coarse = CoarseClock::of(&first);
                }
            }
            self.guard.check(batch.is_none())?;
            return Ok(batch);
        }
        while !self.ended && self.buffered_requests() < self.window.saturating_add(BATCH_ROWS) {
            self.read_on()?;
        }
        if let Some(arrival) = self.in_order_to.take() {
            self.sort_from(arrival);
        }
        let batch = match self.full.pop_front() {
            Some(batch) => batch,
            None if self.builder.is_empty() => return Ok(None),
            None => self.freeze(),
        };
        let first = batch.get(0).arrival.0;
        if first < self.last_arrival {
            return Err(self.out_of_order(Nanos(self.last_arrival.saturating_sub(first)))?);
        }
        self.last_arrival = batch.get(batch.len() - 1).arrival.0;
        Ok(Some(batch))
    }

    /// Returns the error for a request out of order. The request arrived `behind` earlier than a request that the reader has already
    /// returned.
    #[cold]
    fn out_of_order(&mut self, behind: Nanos) -> Result<Error> {
        while self.clock.file.is_undecided() && !self.ended {
            self.read_on()?;
        }
        let window = self.window;
        let Some(jump) = self.clock.file.first_backward() else {
            let message = format!("a request is more than {window} requests after its place in the order of arrivals");
            return Ok(Error::new(ErrorClass::Order, message)
                .of_field("arrival", 0, format!("{behind} before its predecessor").as_bytes())
                .hint(format!("use a larger --reorder-window than the current one of {window} requests")));
        };
        let back = Nanos(jump.length_ns.min(i64::MAX as u64).cast_signed());
        let message =
            format!("the clock jumps back at request {}, after which no request can be sorted into its place", jump.request);
        Ok(Error::new(ErrorClass::Order, message).of_field("arrival", 0, format!("{back} back").as_bytes()).hint(format!(
            "use --mend-clock to put them after the earlier ones, or a larger --reorder-window (now {window}) if they \
             belong between them"
        )))
    }

    /// Number of requests that are kept back.
    fn buffered_requests(&self) -> usize {
        self.full.len() * BATCH_ROWS + self.builder.len()
    }

    /// Reads the next requests from the source.
    fn read_on(&mut self) -> Result<()> {
        interrupt::check()?;
        let mut read = std::mem::take(&mut self.read);
        read.clear();
        self.ended = !self.source.fill(&mut read)?;
        if !std::mem::replace(&mut self.clock.is_clock_checked, true) {
            while read.len() < JUDGED && !self.ended {
                self.ended = !self.source.fill(&mut read)?;
            }
            self.clock.coarse = CoarseClock::of(&read[..read.len().min(JUDGED)]);
        }
        if let Some(coarse) = self.clock.coarse {
            for request in &mut read {
                coarse.keep_order(request);
            }
        }
        if let Some(ClockMendState::Planned(mender)) = &mut self.clock.mending {
            mender.mend(&mut read, self.ended);
        }
        let full = self.full.len();
        self.put_in_order(&mut read);
        if self.ended {
            self.clock.file.finish();
        }
        self.hold(&read, |reader, row| reader.guard.see(reader.builder.rows(row)));
        self.read = read;
        if self.ended || self.full.len() > full { self.guard.check(self.ended) } else { Ok(()) }
    }

    /// Adds requests to the builder in groups. After each group, calls `done` with the builder's row of the first request of the group.
    fn hold(&mut self, mut requests: &[Request], done: impl Fn(&mut Self, usize)) {
        while !requests.is_empty() {
            let room = (BATCH_ROWS - self.builder.len()).min(CACHED_ROWS);
            let (now, later) = requests.split_at(room.min(requests.len()));
            let row = self.builder.len();
            self.builder.extend(now);
            done(self, row);
            if self.builder.len() == BATCH_ROWS {
                let batch = self.freeze();
                self.full.push_back(batch);
            }
            requests = later;
        }
    }

    /// Counts requests that arrived before the preceding one in the file, and sorts those that were just read.
    fn put_in_order(&mut self, read: &mut [Request]) {
        let ([first, ..], [.., last]) = (&*read, &*read) else { return };
        let mut back = 0;
        let mut widest = 0_i64;
        for pair in read.windows(2) {
            let gap = pair[1].arrival.0.wrapping_sub(pair[0].arrival.0);
            back += u64::from(pair[1].arrival < pair[0].arrival);
            widest = widest.max(gap);
        }
        // The clock mender checks the order of the file itself, because it returns some requests later than the file does.
        if self.clock.in_file_order && self.clock.mending.is_none() {
            self.clock.file.see(read, back == 0, widest.unsigned_abs());
        }
        self.reordered += back + u64::from(first.arrival.0 < self.last_in_file);
        self.last_in_file = last.arrival.0;
        if back > 0 {
            read.sort_by_key(|request| request.arrival);
        }
        let first = read[0].arrival.0;
        if first < self.guard.newest() {
            self.in_order_to = Some(self.in_order_to.map_or(first, |before| before.min(first)));
        }
    }

    /// Returns the requests in the builder as a batch.
    fn freeze(&mut self) -> Batch {
        let (processes, devices) = self.source.names();
        refresh(&mut self.processes, processes);
        refresh(&mut self.devices, devices);
        self.builder.finish(&self.processes, &self.devices)
    }

    /// Sorts the requests that are kept back, which are in order up to `arrival`. Requests with equal arrivals keep the order of the file.
    fn sort_from(&mut self, arrival: i64) {
        let later = |batch: &Batch| batch.rows().arrival.iter().any(|other| *other > arrival);
        let first = self.full.iter().position(later).unwrap_or(self.full.len());
        let last = self.freeze();
        let mut requests = std::mem::take(&mut self.read);
        requests.clear();
        for batch in self.full.drain(first..).chain([last]) {
            requests.extend(batch.iter());
        }
        requests.sort_by_key(|request| request.arrival);
        self.hold(&requests, |_, _| ());
        self.read = requests;
    }

    /// Counts of the records seen, kept, skipped and changed so far.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = self.source.ledger();
        self.screen.count(&mut ledger);
        ledger.reordered += self.reordered;
        // A Parquet trace stores the number of requests that its first import kept. This reader may keep fewer, so the larger number is
        // reported.
        ledger.kept = ledger.kept.max(self.kept_requests);
        ledger.mended_jumps += self.clock.mended();
        ledger.clock_jumps = ledger.clock_jumps.max(ledger.mended_jumps + self.clock.remaining_jumps());
        ledger
    }

    /// The origin of the trace.
    pub fn header(&self) -> TraceHeader {
        let mut header = self.source.header();
        if header.format == self.recognised.format {
            header.recognised = Some(self.recognised.by.to_owned());
        }
        header.recorded = Some(self.recorded.union(self.observed_features.unwrap_or_default()));
        if let Some(coarse) = self.clock.coarse {
            header.coarse_clock = Some(coarse.text());
        }
        self.clock.describe(&mut header, self.screen.leaves_out());
        if self.clock.mending.is_some() {
            // Requests with shifted times are read without their block notes.
            header.block_notes = None;
        }
        if let Some(window) = self.screen.window() {
            header.reissue_window = Some(window.to_string());
        }
        header
    }

    /// The format of the file itself, and how it was recognised.
    pub fn recognised(&self) -> RecognisedFormat {
        self.recognised
    }

    /// Progress of reading the file.
    pub fn progress(&self) -> ReadProgress {
        self.source.progress()
    }

    /// The number of requests of the whole trace if the file states that it is a part of one; otherwise `None`.
    pub fn requests_of_whole_trace(&self) -> Option<u64> {
        self.source.requests_of_whole_trace()
    }

    /// The extent of the whole trace if it is known without reading the trace; `None` if requests may be filtered out.
    pub fn extent(&self) -> Option<TraceExtent> {
        self.source.extent().filter(|_| !self.screen.leaves_out())
    }

    /// Devices with the number of their requests so far, largest number first.
    pub fn devices(&self) -> Vec<(String, u64)> {
        self.screen.devices()
    }

    /// Rejects a trace with several devices from now on, like [`ReadOptions::one_device`].
    pub fn require_one_device(&mut self) {
        self.screen.require_one_device();
    }

    /// The file being read.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl ClockMonitor {
    /// Number of clock jumps that were removed.
    fn mended(&self) -> u64 {
        self.mender().map_or(0, ClockMender::count)
    }

    fn mender(&self) -> Option<&ClockMender> {
        match &self.mending {
            Some(ClockMendState::Planned(mender)) => Some(mender),
            _ => None,
        }
    }

    /// Returns the number of clock jumps that were not removed. They are counted in the order of the file if the clock jumped back,
    /// otherwise in order of arrival.
    fn remaining_jumps(&self) -> u64 {
        if self.file.backward() > 0 { self.file.count() } else { self.gaps.jumps().len() as u64 }
    }

    /// Adds the clock jumps to a header, which may already contain jumps from an earlier import.
    fn describe(&self, header: &mut TraceHeader, leaves_out: bool) {
        let stored = header.clock_jumps().unwrap_or_default();
        let mut all = if self.file.backward() > 0 {
            self.file.jumps()
        } else if stored.interleaved() {
            // The requests are now sorted by arrival, so the clock jumps cannot be detected again. The jumps that the header stores are
            // used instead.
            stored
        } else {
            let left = self.gaps.jumps().iter().map(|(length_ns, place)| ClockJump::forward(*length_ns, *place));
            let mended = stored.jumps.iter().filter(|jump| jump.mended).copied();
            ClockJumps { jumps: mended.chain(left).collect(), without_ns: 0 }
        };
        if let Some(mender) = self.mender() {
            all.jumps.retain(|jump| jump.mended || jump.direction == JumpDirection::Backward);
            all.jumps.extend(mender.jumps());
        }
        if leaves_out {
            // `without_ns` is the duration of the complete trace. This reader omits requests, so the duration becomes 0 (unknown).
            all.without_ns = 0;
        }
        all.jumps.sort_by_key(|jump| jump.request);
        all.jumps.truncate(MOST_JUMPS);
        header.clock_jumps = if all.jumps.is_empty() { None } else { serde_json::to_string(&all).ok() };
    }
}

/// Updates a snapshot of a table of names. Tables only grow, so a snapshot of another length is outdated.
fn refresh(snapshot: &mut Arc<NameTable>, names: &NameTable) {
    if snapshot.len() != names.len() {
        *snapshot = Arc::new(names.clone());
    }
}

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
