//! A trace that is read in a thread of its own while what was read before is worked on.

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

/// Batches that may lie ready: enough that neither side waits for a slow batch of the other.
const READY: usize = 8;

/// Batches taken before the reading thread is notified of room: a wake-up costs as much as a hundred requests.
const NOTIFY_EVERY: usize = READY / 2;

/// Time between two looks at whether the wait for a batch is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// Reads ahead on a thread of its own, and gives the batches, counts and errors of a [`TraceReader`]. Counts cover the
/// batches taken, not those read ahead. Reading starts with the first call.
pub(crate) struct ReadAhead {
    recognised: Recognised,
    whole: Option<u64>,
    state: State,
    /// As of the batch that was taken last.
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

/// The thread, and what goes to and fro.
struct Reading {
    batches: Receiver<(Result<Option<Batch>>, Seen)>,
    thread: JoinHandle<()>,
    /// Signals that there is room for [`NOTIFY_EVERY`] batches more.
    room: Sender<()>,
    /// Batches that were taken since.
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

    /// As [`TraceReader::next_batch`]; after the end and after an error there is nothing more.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        if matches!(self.state, State::Waiting(_)) {
            self.start()?;
        }
        let State::Reading(reading) = &mut self.state else { return Ok(None) };
        let (batch, seen) = loop {
            // The thread goes on by itself; who waits for it can be interrupted.
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
            // A thread that has ended needs no room.
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
                // The receiver is gone where the run has stopped.
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

    /// The thread ended without a word: its panic goes on here.
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

    /// As [`TraceReader::require_one_device`]; false if reading has started already.
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
