//! Reads a trace ahead in its own thread, while earlier batches are processed.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::{
    Batch, Error, ErrorClass, Ledger, ReadOptions, ReadProgress, RecognisedFormat, Result, TraceHeader, TraceReader, interrupt,
};

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
