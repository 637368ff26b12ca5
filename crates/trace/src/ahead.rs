//! Reads a trace ahead in a thread of its own, while earlier batches are processed.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use emmclab_base::{Error, Kind, Result, interrupt};

use crate::batch::Batch;
use crate::formats::ReadOptions;
use crate::header::{Header, Recognised};
use crate::ledger::Ledger;
use crate::reader::TraceReader;
use crate::source::Progress;

/// Maximum number of batches read ahead: enough that neither thread waits for a slow batch of the other.
const READY: usize = 8;

/// Batches consumed before the reading thread is told that it may read more: a wake-up costs as much as a hundred requests.
const NOTIFY_EVERY: usize = READY / 2;

/// Interval between checks for an interrupt while waiting for a batch.
const PATIENCE: Duration = Duration::from_millis(50);

/// Reads ahead in a thread of its own, and returns the batches, counts and errors of a [`TraceReader`]. Counts cover the
/// batches returned, not those read ahead. Reading starts with the first call.
pub(crate) struct ReadAhead {
    recognised: Recognised,
    whole: Option<u64>,
    state: State,
    /// State of the reader after the batch that was returned last.
    seen: Seen,
}

/// State of the reader after a batch.
struct Seen {
    ledger: Ledger,
    header: Header,
    progress: Progress,
    devices: Vec<(String, u64)>,
}

enum State {
    /// The thread has not been started.
    Waiting(Box<TraceReader>),
    Reading(Reading),
    Ended,
}

/// The reading thread and its channels.
struct Reading {
    batches: Receiver<(Result<Option<Batch>>, Seen)>,
    thread: JoinHandle<()>,
    /// Allows the thread to read [`NOTIFY_EVERY`] more batches.
    room: Sender<()>,
    /// Batches consumed since the last signal.
    taken: usize,
}

impl Seen {
    fn of(reader: &TraceReader) -> Self {
        Self {
            ledger: reader.ledger(),
            header: reader.header(),
            progress: reader.progress(),
            devices: reader.devices(),
        }
    }
}

impl ReadAhead {
    /// As [`TraceReader::open`].
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let reader = TraceReader::open(path, options)?;
        Ok(Self {
            recognised: reader.recognised(),
            whole: reader.whole(),
            seen: Seen::of(&reader),
            state: State::Waiting(Box::new(reader)),
        })
    }

    /// As [`TraceReader::next_batch`]; `None` after the end and after an error.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        if matches!(self.state, State::Waiting(_)) {
            self.start()?;
        }
        let State::Reading(reading) = &mut self.state else { return Ok(None) };
        let (batch, seen) = loop {
            // The reading thread runs on its own, so the waiting thread checks for interrupts.
            interrupt::check()?;
            match reading.batches.recv_timeout(PATIENCE) {
                Ok(read) => break read,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.panicked(),
            }
        };
        self.seen = seen;
        reading.taken += 1;
        if reading.taken == NOTIFY_EVERY {
            reading.taken = 0;
            // The send fails if the thread has ended, which is harmless.
            let _ = reading.room.send(());
        }
        if !matches!(batch, Ok(Some(_))) {
            self.state = State::Ended;
        }
        batch
    }

    fn start(&mut self) -> Result<()> {
        let State::Waiting(mut reader) = std::mem::replace(&mut self.state, State::Ended) else {
            return Ok(());
        };
        let (sender, batches) = channel();
        let (room, more) = channel();
        let read = move || {
            let mut left = READY;
            loop {
                let batch = reader.next_batch();
                let last = !matches!(batch, Ok(Some(_)));
                // The receiver is dropped when the run stops.
                if sender.send((batch, Seen::of(&reader))).is_err() || last {
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
        let thread = Builder::new().name("read-ahead".to_owned()).spawn(read).map_err(|error| {
            Error::new(Kind::Io, format!("a thread to read the trace could not be started: {error}"))
        })?;
        self.state = State::Reading(Reading { batches, thread, room, taken: 0 });
        Ok(())
    }

    /// The thread ended without a last batch or an error: resumes its panic here.
    #[cold]
    fn panicked(&mut self) -> ! {
        if let State::Reading(reading) = std::mem::replace(&mut self.state, State::Ended)
            && let Err(panic) = reading.thread.join()
        {
            std::panic::resume_unwind(panic);
        }
        unreachable!("a reader ends with its last batch or an error")
    }

    pub fn ledger(&self) -> &Ledger {
        &self.seen.ledger
    }

    /// As [`TraceReader::devices`].
    pub fn devices(&self) -> &[(String, u64)] {
        &self.seen.devices
    }

    /// As [`TraceReader::require_one_device`], but only before reading; false if reading has started already.
    pub fn require_one_device(&mut self) -> bool {
        let State::Waiting(reader) = &mut self.state else { return false };
        reader.require_one_device();
        true
    }

    pub fn header(&self) -> &Header {
        &self.seen.header
    }

    /// As [`TraceReader::whole`].
    pub fn whole(&self) -> Option<u64> {
        self.whole
    }

    pub fn recognised(&self) -> Recognised {
        self.recognised
    }

    pub fn progress(&self) -> Progress {
        self.seen.progress
    }
}
