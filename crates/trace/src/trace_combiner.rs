//! Combines several traces: interleaves their requests on one clock, and repeats them on request. Each trace is read ahead in its own
//! thread, while earlier batches are processed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::{
    BATCH_ROWS, Batch, BatchBuilder, BlockNote, Error, ErrorClass, GrowingNameTable, Ledger, NameId, NameTable, Nanos,
    ReadOptions, ReadProgress, RecognisedFormat, RecordedFeatures, Request, Result, TraceHeader, TraceReader, formats, interrupt,
};

/// A trace to combine.
#[derive(Clone, Debug, Default)]
pub struct TraceInput {
    /// Path of the file.
    pub path: PathBuf,
    /// Options for reading the file.
    pub options: ReadOptions,
    /// Arrival of the trace's first request on the common clock.
    pub start_offset: Nanos,
}

/// Interleaves traces by arrival. Each trace starts at time 0 or at its offset. Equal arrivals are in the order of the traces. A single
/// trace that is read once is not changed. Each trace is read ahead in its own thread.
///
/// Addresses are not changed, so traces of the same device share its address space. Service times are not changed either, although each
/// trace had the device to itself.
pub struct TraceCombiner {
    inputs: Vec<TraceInput>,
    streams: Vec<TraceCursor>,
    processes: GrowingNameTable,
    devices: GrowingNameTable,
    builder: BatchBuilder,
    /// Whether the only input is a single trace, which is read once and without a time offset.
    plain: bool,
    /// Whether the inputs are parts of one trace; the times between the parts are then kept.
    in_parts: bool,
    /// Number of passes over the traces that follow the current pass.
    passes: u32,
    /// Offset that is added to the times of this pass.
    shift: Nanos,
    last: Nanos,
    requests: u64,
    earlier_passes: Ledger,
}

/// An open trace and the position in it.
struct TraceCursor {
    reader: TraceReadAhead,
    batch: Option<Batch>,
    row: usize,
    /// The next request, with times relative to the start of this pass over the inputs; `None` at the end.
    head: Option<Request>,
    /// Offset that is subtracted from the times of the trace; known after its first request.
    origin: Nanos,
    /// For each process id of the current batch, the id in the combined trace.
    processes: Vec<NameId>,
    devices: Vec<NameId>,
}

impl TraceCombiner {
    /// Opens the inputs. All of them are read `passes` times (at least once). A pass begins one mean inter-arrival time after the
    /// last request of the pass before. Fails with [`ErrorClass::Config`] without an input, otherwise as
    /// [`crate::TraceReader::open`] and [`crate::TraceReader::next_batch`].
    pub fn open(inputs: Vec<TraceInput>, passes: u32) -> Result<Self> {
        if inputs.is_empty() {
            let error = Error::new(ErrorClass::Config, "there is no trace to combine");
            return Err(error.hint("name at least one trace"));
        }
        let inputs = one_per_recording(inputs);
        let mut combiner = Self {
            plain: inputs.len() == 1 && passes <= 1 && inputs[0].start_offset == Nanos::ZERO,
            inputs,
            in_parts: false,
            streams: Vec::new(),
            processes: GrowingNameTable::default(),
            devices: GrowingNameTable::default(),
            builder: BatchBuilder::default(),
            passes: passes.saturating_sub(1),
            shift: Nanos::ZERO,
            last: Nanos::ZERO,
            requests: 0,
            earlier_passes: Ledger::default(),
        };
        combiner.open_streams()?;
        combiner.builder = BatchBuilder::of_noted(combiner.header().block_notes.is_some());
        Ok(combiner)
    }

    /// Rejects inputs with several devices from now on, like [`ReadOptions::one_device`]. Fails as [`TraceCombiner::open`]: if
    /// reading has started, the inputs are opened again.
    pub fn require_one_device(&mut self) -> Result<()> {
        self.inputs.iter_mut().for_each(|input| input.options.one_device = true);
        if !self.streams.iter_mut().all(|stream| stream.reader.require_one_device()) {
            *self = Self::open(std::mem::take(&mut self.inputs), self.passes + 1)?;
        }
        Ok(())
    }

    /// Devices with the number of their requests in this pass so far, largest number first.
    pub fn devices(&self) -> Vec<(String, u64)> {
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        let devices = self.streams.iter().flat_map(|stream| stream.reader.snapshot.devices.iter());
        devices.for_each(|(name, requests)| *all.entry(name).or_default() += requests);
        let mut rows: Vec<_> = all.into_iter().map(|(name, requests)| (name.to_owned(), requests)).collect();
        rows.sort_by_key(|(_, requests)| Reverse(*requests));
        rows
    }

    /// The traces that are combined.
    pub fn inputs(&self) -> &[TraceInput] {
        &self.inputs
    }

    /// Opens every input from its beginning.
    fn open_streams(&mut self) -> Result<()> {
        self.streams.clear();
        for input in &self.inputs {
            let mut stream = TraceCursor {
                reader: TraceReadAhead::open(&input.path, &input.options)?,
                batch: None,
                row: 0,
                head: None,
                origin: Nanos::ZERO,
                processes: Vec::new(),
                devices: Vec::new(),
            };
            if !self.plain {
                stream.advance(&mut self.processes, &mut self.devices)?;
                stream.origin = stream.head.map_or(Nanos::ZERO, |head| head.arrival - input.start_offset);
            }
            self.streams.push(stream);
        }
        // Traces with start offsets are never treated as parts of one trace.
        let moved = self.inputs.iter().any(|input| input.start_offset != Nanos::ZERO);
        self.in_parts = !moved && are_parts(&self.streams);
        if self.in_parts {
            let heads = self.streams.iter().filter(|stream| stream.head.is_some());
            let first = heads.map(|stream| stream.origin).min().unwrap_or_default();
            self.streams.iter_mut().for_each(|stream| stream.origin = first);
        }
        for stream in self.streams.iter_mut().filter(|_| !self.plain) {
            stream.head = stream.head.map(|head| since(&head, stream.origin));
        }
        Ok(())
    }

    /// The next batch; `None` at the end of the last pass. Fails as [`crate::TraceReader::next_batch`].
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        if self.plain {
            return self.streams[0].reader.next_batch();
        }
        while self.builder.len() < BATCH_ROWS {
            let next = self.streams.iter_mut().filter(|stream| stream.head.is_some()).min_by_key(|stream| {
                // `min_by_key` returns the first of equal elements, so requests with the same arrival are in the order of the inputs.
                stream.head.map(|head| head.arrival)
            });
            let Some(stream) = next else {
                if self.passes == 0 {
                    break;
                }
                self.next_pass()?;
                continue;
            };
            if let Some(head) = stream.head {
                let head = since(&head, Nanos::ZERO - self.shift);
                self.last = head.arrival;
                self.requests += 1;
                self.builder.push_noted(&head, stream.notes());
            }
            stream.advance(&mut self.processes, &mut self.devices)?;
        }
        let (processes, devices) = (self.processes.shared(), self.devices.shared());
        Ok((!self.builder.is_empty()).then(|| self.builder.finish(processes, devices)))
    }

    fn next_pass(&mut self) -> Result<()> {
        self.passes -= 1;
        self.earlier_passes = self.ledger();
        self.shift = self.last + Nanos(self.last.0 / self.requests.max(1).cast_signed());
        self.open_streams()
    }

    /// The sum of the ledgers (counts of kept, changed and lost records) of all traces and passes. The parts of one trace have a common
    /// ledger, which is counted once.
    pub fn ledger(&self) -> Ledger {
        let mut all = self.earlier_passes.clone();
        if let ([first, ..], true) = (self.streams.as_slice(), self.in_parts) {
            let mut whole = first.reader.snapshot.ledger.clone();
            whole.kept = self.streams.iter().map(|stream| stream.reader.snapshot.ledger.kept).sum();
            // Re-issues are detected while the rows of each part are read, so each part has its own count.
            whole.reissued = self.streams.iter().map(|stream| stream.reader.snapshot.ledger.reissued).sum();
            all.add(&whole);
            return all;
        }
        self.streams.iter().for_each(|stream| all.add(&stream.reader.snapshot.ledger));
        all
    }

    /// The header of the combined trace, which lists all sources.
    pub fn header(&self) -> TraceHeader {
        let headers: Vec<TraceHeader> = self.streams.iter().map(|stream| stream.reader.snapshot.header.clone()).collect();
        if let ([only], true) = (headers.as_slice(), self.plain) {
            return only.clone();
        }
        let joined = |field: fn(&TraceHeader) -> &str| {
            let mut parts: Vec<&str> = headers.iter().map(field).collect();
            parts.dedup();
            parts.join(" + ")
        };
        let device = headers[0].device.clone().filter(|_| headers.iter().all(|header| header.device == headers[0].device));
        let reissue_window = headers[0]
            .reissue_window
            .clone()
            .filter(|_| headers.iter().all(|header| header.reissue_window == headers[0].reissue_window));
        // A part of a trace may list only the features that its own requests show, so the features of all parts are united.
        let together = if self.in_parts { RecordedFeatures::union } else { RecordedFeatures::intersection };
        TraceHeader {
            source: joined(|header| &header.source),
            format: joined(|header| &header.format),
            recognised: None,
            recorded: headers.iter().map(TraceHeader::recorded).reduce(together),
            device,
            clock: "relative".to_owned(),
            note: Some(if self.in_parts {
                format!("{} parts of one trace", headers.len())
            } else {
                let together = self.inputs.iter().all(|input| input.start_offset == Nanos::ZERO);
                let from = if together { "all from time 0".to_owned() } else { self.offsets() };
                format!("{} traces combined, {from}", headers.len())
            }),
            clock_jumps: None,
            coarse_clock: headers.iter().find_map(|header| header.coarse_clock.clone()),
            reissue_window,
            block_notes: headers.iter().find_map(|header| header.block_notes.clone()),
            // The recorded activity of a single trace does not describe the combined trace.
            activity: None,
            registers: headers[0]
                .registers
                .clone()
                .filter(|_| headers.iter().all(|header| header.registers == headers[0].registers)),
        }
    }

    /// The start offsets of the traces, as text.
    fn offsets(&self) -> String {
        let seconds: Vec<_> = self.inputs.iter().map(|input| format!("{} s", input.start_offset.0 as f64 / 1e9)).collect();
        format!("from {}", seconds.join(", "))
    }

    /// Like [`crate::TraceReader::requests_of_whole_trace`] for a single trace; `None` for several.
    pub fn requests_of_whole_trace(&self) -> Option<u64> {
        match self.streams.as_slice() {
            [only] => only.reader.requests_of_whole_trace,
            _ => None,
        }
    }

    /// The format of each file, and how it was recognised.
    pub fn recognised(&self) -> impl Iterator<Item = RecognisedFormat> {
        self.streams.iter().map(|stream| stream.reader.recognised)
    }

    /// Progress in this pass, summed over all files.
    pub fn progress(&self) -> ReadProgress {
        let parts = || self.streams.iter().map(|stream| stream.reader.snapshot.progress);
        ReadProgress { done: parts().map(|part| part.done).sum(), total: parts().map(|part| part.total).sum() }
    }
}

/// Whether the inputs are parts of one trace: each file states that it is a part, and all files have the same source, format, clock and
/// number of requests of the whole trace.
fn are_parts(streams: &[TraceCursor]) -> bool {
    let [first, others @ ..] = streams else { return false };
    let origin = |stream: &TraceCursor| {
        let TraceHeader { source, format, clock, .. } = stream.reader.snapshot.header.clone();
        (stream.reader.requests_of_whole_trace, source, format, clock)
    };
    let whole = origin(first);
    whole.0.is_some() && !others.is_empty() && others.iter().all(|other| origin(other) == whole)
}

/// If several inputs are files of one recording, keeps only the first of them, because it reads all files of the recording. A file that is
/// listed twice is read twice.
fn one_per_recording(inputs: Vec<TraceInput>) -> Vec<TraceInput> {
    let mut kept: Vec<(TraceInput, Vec<PathBuf>)> = Vec::with_capacity(inputs.len());
    for input in inputs {
        let files = formats::files(&input.path);
        let is_further = |(before, its): &(TraceInput, Vec<PathBuf>)| {
            *its == files && before.path != input.path && before.start_offset == input.start_offset
        };
        if files.len() < 2 || !kept.iter().any(is_further) {
            kept.push((input, files));
        }
    }
    kept.into_iter().map(|(input, _)| input).collect()
}

impl TraceCursor {
    /// Advances to the next request.
    fn advance(&mut self, processes: &mut GrowingNameTable, devices: &mut GrowingNameTable) -> Result<()> {
        self.row += 1;
        while self.batch.as_ref().is_none_or(|batch| self.row >= batch.len()) {
            let Some(batch) = self.reader.next_batch()? else {
                self.head = None;
                return Ok(());
            };
            translate(batch.processes(), processes, &mut self.processes);
            translate(batch.devices(), devices, &mut self.devices);
            self.batch = Some(batch);
            self.row = 0;
        }
        let ours = |ids: &[NameId], id: Option<NameId>| id.and_then(|id| ids.get(id.0 as usize).copied());
        self.head = self.batch.as_ref().map(|batch| batch.get(self.row)).map(|request| Request {
            process: ours(&self.processes, request.process),
            device: ours(&self.devices, request.device),
            ..since(&request, self.origin)
        });
        Ok(())
    }

    /// The block notes of the next request.
    fn notes(&self) -> &[BlockNote] {
        self.batch.as_ref().map_or(&[], |batch| batch.notes(self.row))
    }
}

fn translate(theirs: &NameTable, ours: &mut GrowingNameTable, ids: &mut Vec<NameId>) {
    for name in theirs.from(ids.len()) {
        ids.push(ours.intern(name));
    }
}

/// The request with times relative to `origin`.
fn since(request: &Request, origin: Nanos) -> Request {
    let shift = |time: Nanos| Nanos(time.0.saturating_sub(origin.0));
    Request {
        arrival: shift(request.arrival),
        start: request.start.map(shift),
        issue: request.issue.map(shift),
        served: request.served.map(shift),
        complete: request.complete.map(shift),
        ..*request
    }
}

/// Maximum number of batches that are read ahead: enough that neither thread waits for a single slow batch of the other.
const READY: usize = 8;

/// Number of consumed batches after which the reading thread is permitted to read as many more. One permit serves several batches, because
/// a wake-up costs as much as a hundred requests.
const NOTIFY_EVERY: usize = READY / 2;

/// Interval of checks for an interruption while waiting for a batch.
const PATIENCE: Duration = Duration::from_millis(50);

/// Reads ahead in its own thread, and returns the batches, counts and errors of a [`TraceReader`]. Counts cover the returned
/// batches, not those read ahead. Reading starts at the first call.
pub(crate) struct TraceReadAhead {
    pub recognised: RecognisedFormat,
    /// Like [`TraceReader::requests_of_whole_trace`].
    pub requests_of_whole_trace: Option<u64>,
    state: TraceReadAheadState,
    /// State of the reader after the last returned batch.
    pub snapshot: ReaderSnapshot,
}

/// State of the reader after a batch.
pub(crate) struct ReaderSnapshot {
    pub ledger: Ledger,
    pub header: TraceHeader,
    pub progress: ReadProgress,
    /// Like [`TraceReader::devices`].
    pub devices: Vec<(String, u64)>,
}

enum TraceReadAheadState {
    /// The thread is not started yet.
    Waiting(Box<TraceReader>),
    Reading(ReaderThread),
    Ended,
}

/// The reading thread and its channels.
struct ReaderThread {
    batches: Receiver<(Result<Option<Batch>>, ReaderSnapshot)>,
    thread: JoinHandle<()>,
    /// Channel to the thread; each message permits it to read [`NOTIFY_EVERY`] more batches.
    read_permits: Sender<()>,
    /// Number of batches consumed since the last permit.
    consumed_batches: usize,
}

impl ReaderSnapshot {
    fn of(reader: &TraceReader) -> Self {
        Self { ledger: reader.ledger(), header: reader.header(), progress: reader.progress(), devices: reader.devices() }
    }
}

impl TraceReadAhead {
    /// Like [`TraceReader::open`].
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let reader = TraceReader::open(path, options)?;
        Ok(Self {
            recognised: reader.recognised(),
            requests_of_whole_trace: reader.requests_of_whole_trace(),
            snapshot: ReaderSnapshot::of(&reader),
            state: TraceReadAheadState::Waiting(Box::new(reader)),
        })
    }

    /// Returns the next batch, like [`TraceReader::next_batch`]. Returns `None` after the last batch, and after an error.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        if matches!(self.state, TraceReadAheadState::Waiting(_)) {
            self.start()?;
        }
        let TraceReadAheadState::Reading(reading) = &mut self.state else { return Ok(None) };
        let (batch, seen) = loop {
            // The reading thread does not check for interruptions, so the waiting thread does.
            interrupt::check()?;
            match reading.batches.recv_timeout(PATIENCE) {
                Ok(read) => break read,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.panicked(),
            }
        };
        self.snapshot = seen;
        reading.consumed_batches += 1;
        if reading.consumed_batches == NOTIFY_EVERY {
            reading.consumed_batches = 0;
            // Sending fails if the reading thread has ended, which is harmless.
            let _ = reading.read_permits.send(());
        }
        if !matches!(batch, Ok(Some(_))) {
            self.state = TraceReadAheadState::Ended;
        }
        batch
    }

    fn start(&mut self) -> Result<()> {
        let TraceReadAheadState::Waiting(mut reader) = std::mem::replace(&mut self.state, TraceReadAheadState::Ended) else {
            return Ok(());
        };
        let (sender, batches) = channel();
        let (room, more) = channel();
        let read = move || {
            let mut left = READY;
            loop {
                let batch = reader.next_batch();
                let last = !matches!(batch, Ok(Some(_)));
                // Sending fails if the receiver was dropped, because the run stops.
                if sender.send((batch, ReaderSnapshot::of(&reader))).is_err() || last {
                    return;
                }
                left -= 1;
                if left == 0 {
                    match more.recv() {
                        Ok(()) => left = NOTIFY_EVERY,
                        Err(_) => return,
                    }
                }
            }
        };
        let thread = Builder::new()
            .name("read-ahead".to_owned())
            .spawn(read)
            .map_err(|error| Error::new(ErrorClass::Io, format!("a thread to read the trace could not be started: {error}")))?;
        self.state = TraceReadAheadState::Reading(ReaderThread { batches, thread, read_permits: room, consumed_batches: 0 });
        Ok(())
    }

    /// The thread ended without a last batch or an error: propagates its panic.
    #[cold]
    fn panicked(&mut self) -> ! {
        if let TraceReadAheadState::Reading(reading) = std::mem::replace(&mut self.state, TraceReadAheadState::Ended)
            && let Err(panic) = reading.thread.join()
        {
            std::panic::resume_unwind(panic);
        }
        unreachable!("a reader ends with its last batch or an error")
    }

    /// Like [`TraceReader::require_one_device`], but only possible before reading starts; returns false afterwards.
    pub fn require_one_device(&mut self) -> bool {
        let TraceReadAheadState::Waiting(reader) = &mut self.state else { return false };
        reader.require_one_device();
        true
    }
}
