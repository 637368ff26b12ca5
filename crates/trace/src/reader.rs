//! Opening a trace of any format as a stream of batches in order of arrival.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::{BATCH_ROWS, Batch, BatchBuilder};
use crate::error::{Error, Kind, Result};
use crate::formats;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::request::Request;

/// Where a trace comes from; stored with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// File name (without folders) or recording it was first read from.
    pub source: String,
    /// Name of the format it was first read from.
    pub format: String,
    /// How that format was recognised: by `content`, or because `--format` or `--columns` said so.
    pub recognised: Option<String>,
    /// The device, where the whole trace is of one.
    pub device: Option<String>,
    /// What time 0 is: `unix`, `monotonic` or `relative`.
    pub clock: String,
    /// Anything else worth knowing, as the recorder gave it.
    pub note: Option<String>,
}

/// How to read. The default finds out everything by itself.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Name of a format (`emmclab formats`); found by its content where `None`.
    pub format: Option<String>,
    /// Skip bad records and count them, rather than stop at the first.
    pub lenient: bool,
    /// Column names of a generic CSV in order, comma separated (`arrival,op,sector,sectors,...`).
    pub columns: Option<String>,
    /// Unit of times, where the format leaves it open: `s`, `ms`, `us`, `ns`.
    pub time_unit: Option<String>,
    /// Unit of addresses and sizes, where the format leaves it open: `sector`, `byte`, `kb`, `page`.
    pub size_unit: Option<String>,
    /// Requests that may be held back to put them in order of arrival; [`BATCH_ROWS`] where `None`.
    pub reorder_window: Option<usize>,
}

/// How far a reader has come, in bytes of the (possibly compressed) input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes in all, where known.
    pub total: Option<u64>,
}

/// A stream of requests in the order of the file; what each format implements.
pub trait Source: Send {
    /// Appends at most about [`BATCH_ROWS`] requests; false at the end of the input.
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
    /// How far it has come.
    fn progress(&self) -> Progress;
    /// The next batch in order of arrival, for formats that hold such batches; [`TraceReader`] then sorts nothing.
    ///
    /// # Errors
    /// As [`Source::fill`].
    fn next_sorted(&mut self) -> Option<Result<Option<Batch>>> {
        None
    }
}

/// A trace as a stream of batches in order of arrival, in bounded memory.
pub struct TraceReader {
    path: PathBuf,
    source: Box<dyn Source>,
    window: usize,
    pending: Vec<Request>,
    builder: BatchBuilder,
    processes: Arc<Names>,
    devices: Arc<Names>,
    last_arrival: i64,
    /// Arrival of the request that stood last in the file, to count descents.
    last_in_file: i64,
    ended: bool,
    kept: u64,
    reordered: u64,
    guard: formats::UnitGuard,
    recognised: Recognised,
}

/// The format that a file is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// Its name.
    pub format: &'static str,
    /// `content`, `--format` or `--columns`.
    pub by: &'static str,
}

impl TraceReader {
    /// Opens `path`, finding its format and compression by content.
    ///
    /// # Errors
    /// Where the file cannot be read, is empty, or is of no known format.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let formats::Opened { source, guard, recognised } =
            formats::open(path, options).map_err(|error| error.in_file(path))?;
        Ok(Self::new(path, source, guard, recognised, options.reorder_window.unwrap_or(BATCH_ROWS)))
    }

    /// A trace of a format that another crate reads, whose source gives batches in order ([`Source::next_sorted`]).
    ///
    /// # Errors
    /// Never; the guard of units, which such a source does not need, could refuse its own defaults.
    pub fn from_sorted(path: &Path, source: Box<dyn Source>) -> Result<Self> {
        let guard = formats::UnitGuard::new(formats::Times::Loose, &ReadOptions::default())?;
        let recognised = Recognised { format: "", by: "content" };
        Ok(Self::new(path, source, guard, recognised, BATCH_ROWS))
    }

    fn new(
        path: &Path,
        source: Box<dyn Source>,
        guard: formats::UnitGuard,
        recognised: Recognised,
        window: usize,
    ) -> Self {
        Self {
            recognised,
            path: path.to_owned(),
            window,
            guard,
            source,
            pending: Vec::new(),
            builder: BatchBuilder::default(),
            processes: Arc::default(),
            devices: Arc::default(),
            last_arrival: i64::MIN,
            last_in_file: i64::MIN,
            ended: false,
            kept: 0,
            reordered: 0,
        }
    }

    /// The next batch, or `None` at the end.
    ///
    /// # Errors
    /// At a bad record, an absurd unit, or a request too far out of order.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        let batch = self.advance().map_err(|error| error.in_file(&self.path))?;
        if let Some(batch) = &batch {
            self.kept += batch.len() as u64;
        } else if self.kept == 0 {
            let ledger = self.ledger();
            let hint = if ledger.skipped > 0 {
                format!("all {} records were skipped; read without --lenient to see why", ledger.skipped)
            } else {
                "was the recording stopped before any I/O happened?".to_owned()
            };
            return Err(Error::new(Kind::Empty, "there is no request in it").hint(hint).in_file(&self.path));
        }
        Ok(batch)
    }

    fn advance(&mut self) -> Result<Option<Batch>> {
        if let Some(sorted) = self.source.next_sorted() {
            let batch = sorted?;
            if let Some(batch) = &batch {
                self.guard.see_batch(batch);
            }
            self.guard.check(batch.is_none())?;
            return Ok(batch);
        }
        while !self.ended && self.pending.len() < self.window.saturating_add(BATCH_ROWS) {
            let before = self.pending.len();
            self.ended = !self.source.fill(&mut self.pending)?;
            for request in &self.pending[before..] {
                self.reordered += u64::from(request.arrival.0 < self.last_in_file);
                self.last_in_file = request.arrival.0;
                self.guard.see(request);
            }
            self.guard.check(self.ended)?;
        }
        if !self.pending.is_sorted_by_key(|request| request.arrival) {
            self.pending.sort_by_key(|request| request.arrival);
        }
        let ready =
            if self.ended { self.pending.len() } else { self.pending.len().saturating_sub(self.window) };
        let ready = ready.min(BATCH_ROWS);
        if ready == 0 {
            return Ok(None);
        }
        if self.pending[0].arrival.0 < self.last_arrival {
            let behind = self.last_arrival - self.pending[0].arrival.0;
            let message =
                format!("a request stands more than {} requests after its place in time", self.window);
            return Err(Error::new(Kind::Order, message)
                .of_field("arrival", 0, format!("{} before its predecessor", crate::Nanos(behind)).as_bytes())
                .hint(format!("give a larger --reorder-window (now {})", self.window)));
        }
        for request in self.pending.drain(..ready) {
            self.last_arrival = request.arrival.0;
            self.builder.push(&request);
        }
        let (processes, devices) = self.source.names();
        refresh(&mut self.processes, processes);
        refresh(&mut self.devices, devices);
        Ok(Some(self.builder.finish(&self.processes, &self.devices)))
    }

    /// What was seen, kept, skipped and changed so far.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = self.source.ledger();
        ledger.reordered += self.reordered;
        // A Parquet trace carries the count of its first import.
        ledger.kept = ledger.kept.max(self.kept);
        ledger
    }

    /// Where the trace comes from.
    pub fn header(&self) -> Header {
        let mut header = self.source.header();
        if header.format == self.recognised.format {
            header.recognised = Some(self.recognised.by.to_owned());
        }
        header
    }

    /// The format that the file itself has, and how that was found out.
    pub fn recognised(&self) -> Recognised {
        self.recognised
    }

    /// How far reading has come.
    pub fn progress(&self) -> Progress {
        self.source.progress()
    }

    /// The file being read.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Names only ever grow, so the length tells whether a snapshot is stale.
fn refresh(snapshot: &mut Arc<Names>, names: &Names) {
    if snapshot.len() != names.len() {
        *snapshot = Arc::new(names.clone());
    }
}
