//! Reads `trace.dat` files of trace-cmd, versions 6 and 7, which contain pages of the kernel's ring buffer. Source:
//! `trace-cmd.dat.v6(5)` and `trace-cmd.dat.v7(5)`.
//!
//! Of several buffers (`trace-cmd record -B NAME`), the first one with block events is read.

mod contents;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use contents::{CpuPages, MAGIC, TraceBuffer, TraceDatCompression, TraceDatContents, TraceDatParser, damaged, nonsense};
use emmclab_trace::formats::{DecompressedInput, FormatTimes, TimeUnit, TraceFormat};
use emmclab_trace::{
    BATCH_ROWS, Batch, Error, ErrorClass, EventTally, Ledger, NameTable, ReadOptions, ReadProgress, RecordedFeatures, Request,
    Result, TraceColumn, TraceHeader, TraceReader, TraceSource,
};

use crate::disks::WatchedDevices;
use crate::event_format::{EventFormat, KernelByteOrder};
use crate::kernel_format::{Files, KernelFormat};
use crate::pipeline::RecordPipeline;
use crate::recorder::lost_by_counters;
use crate::statistics::RecordMeter;

static FORMAT: TraceFormat = TraceFormat {
    name: "trace-cmd",
    about: "trace.dat of trace-cmd, versions 6 and 7",
    known_by: "its magic number and `tracing` at its start",
    from: "`trace-cmd record -C mono -e block -e mmc -e ufs -o FILE`",
    gives: TraceColumn::OF_EVENTS,
    unknown: "`served_ns` without the events of the driver; the wait in the queue without `block_bio_queue`",
    extensions: &[],
    recorded: RecordedFeatures::BLOCK_EVENTS,
    times: FormatTimes::Fixed(TimeUnit::Nanos),
    sniff: |head, _| head.starts_with(MAGIC),
    open: |input: DecompressedInput, _: &ReadOptions| Ok(Box::new(TraceDatReader::open(input)?)),
    writes: None,
};

struct CpuPageReader {
    number: usize,
    /// Offset of the next page in the file, in bytes.
    at: u64,
    /// End of the pages in the file, in bytes.
    end: u64,
    /// Decompressed data that has not been consumed yet; unused in an uncompressed file.
    unpacked: Vec<u8>,
    used: usize,
    /// Latest event time read so far from this CPU. The CPU with the smallest such time is read next.
    latest: u64,
}

struct TraceDatReader {
    parser: TraceDatParser<File>,
    compression: TraceDatCompression,
    page: Vec<u8>,
    cpus: Vec<CpuPageReader>,
    /// CPUs that have more pages to read; updated in each round over the CPUs.
    cpus_behind: Vec<usize>,
    pipeline: RecordPipeline,
    /// Number of lost events of each CPU, as counted by the kernel for the main buffer.
    lost: Vec<(usize, u64)>,
    /// Names of tasks from the list that the kernel saves.
    saved_names: String,
    header: TraceHeader,
    /// Pages of all CPUs. Used to count events by name if the file yields no request.
    pages: Vec<CpuPages>,
    names: BTreeMap<u16, String>,
    tally: EventTally,
    has_batches: bool,
    file_bytes: u64,
    bytes_read: u64,
    ended: bool,
}

impl TraceDatReader {
    /// Opens a `trace.dat` file and reads everything except the pages.
    fn open(input: DecompressedInput) -> Result<Self> {
        let (path, source) = (input.path().to_owned(), input.name());
        // The sections of the file are not read in order, so a seekable file is needed.
        let file = input.into_file()?;
        let total = file.metadata().map_err(|error| Error::io(&path, error))?.len();
        let mut parser = TraceDatParser { input: file, order: KernelByteOrder::Little };
        let mut contents = TraceDatContents::read(&mut parser)?;
        let kernel = KernelFormat::of_any_events(&contents.files)?;
        let names = event_names(&contents.files);
        if kernel.layout.page_bytes() as u64 != contents.page_bytes {
            return Err(nonsense("page size", contents.page_bytes));
        }
        let mut page = vec![0; kernel.layout.page_bytes()];
        let chosen = choose(&mut parser, &contents, &kernel, &mut page)?;
        let buffer = contents.buffers.swap_remove(chosen);
        let main = buffer.name.is_empty();
        Ok(Self {
            parser,
            compression: contents.compression,
            page,
            cpus_behind: Vec::new(),
            pipeline: RecordPipeline::of_any_events(kernel, WatchedDevices::default()),
            lost: if main { contents.statistics.iter().filter_map(|text| lost(text)).collect() } else { Vec::new() },
            saved_names: contents.saved_names,
            header: TraceHeader {
                source,
                format: FORMAT.name.to_owned(),
                clock: clock(&buffer)?.to_owned(),
                note: (!main).then(|| format!("buffer `{}`", buffer.name)),
                ..TraceHeader::default()
            },
            pages: buffer.cpus.clone(),
            cpus: buffer.cpus.into_iter().map(CpuPageReader::new).collect(),
            names,
            tally: EventTally::default(),
            has_batches: false,
            file_bytes: total,
            bytes_read: 0,
            ended: false,
        })
    }

    /// Reads a page of the CPU whose latest event time is the earliest of all CPUs. Returns false if all pages are read.
    fn advance(&mut self) -> Result<bool> {
        let Some(cpu) = self.cpus.iter_mut().filter(|cpu| !cpu.is_empty()).min_by_key(|cpu| cpu.latest) else {
            return Ok(false);
        };
        let before = cpu.at;
        if cpu.page(&mut self.parser, self.compression, &mut self.page)? {
            self.pipeline.page(cpu.number, &self.page);
            cpu.latest = self.pipeline.latest(cpu.number);
        }
        self.bytes_read += cpu.at - before;
        self.cpus_behind.clear();
        self.cpus_behind.extend(self.cpus.iter().filter(|cpu| !cpu.is_empty()).map(|cpu| cpu.number));
        self.pipeline.end_round(&self.cpus_behind);
        Ok(true)
    }

    fn count_events(&mut self) -> Result<EventTally> {
        let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
        for mut cpu in self.pages.clone().into_iter().map(CpuPageReader::new) {
            while !cpu.is_empty() {
                if cpu.page(&mut self.parser, self.compression, &mut self.page)? {
                    self.pipeline.kernel.numbers(&self.page, |number| *counts.entry(number).or_default() += 1);
                }
            }
        }
        let name = |number| self.names.get(number).cloned().unwrap_or_else(|| format!("event {number}"));
        Ok(EventTally::new(counts.iter().map(|(number, count)| (name(number), *count))))
    }

    fn finish(&mut self) {
        self.ended = true;
        self.pipeline.finish();
        self.header.activity = self.pipeline.activity(&self.saved_names).to_json();
        for (cpu, lost) in &self.lost {
            self.pipeline.count_lost(*cpu, *lost);
        }
        let cpus = self.pipeline.cpus();
        let lost = cpus.iter().filter(|counts| counts.lost > 0);
        let lost = lost.map(|counts| format!("CPU {} lost {} events", counts.cpu, counts.lost));
        let note: Vec<_> = self.header.note.take().into_iter().chain(lost).chain(self.pipeline.note()).collect();
        self.header.note = (!note.is_empty()).then(|| note.join("; "));
    }
}

/// Names of events by their id.
fn event_names(files: &Files) -> BTreeMap<u16, String> {
    let formats = files.iter().filter_map(|(path, text)| {
        let name = path.strip_prefix("events/")?.strip_suffix("/format")?.rsplit('/').next()?;
        Some((EventFormat::parse(text).ok()?.id, name.to_owned()))
    });
    formats.collect()
}

/// The index of the first buffer with a block event, or 0 if no buffer has one.
fn choose(
    parser: &mut TraceDatParser<File>, contents: &TraceDatContents, kernel: &KernelFormat, page: &mut [u8],
) -> Result<usize> {
    if contents.buffers.is_empty() {
        return Err(Error::new(ErrorClass::Empty, "the file contains no event").hint("record again while the device has I/O"));
    }
    if contents.buffers.len() > 1 {
        for (number, buffer) in contents.buffers.iter().enumerate() {
            for mut cpu in buffer.cpus.iter().copied().map(CpuPageReader::new) {
                while !cpu.is_empty() {
                    let whole = cpu.page(parser, contents.compression, page)?;
                    let mut events = 0;
                    if whole && kernel.decode(page, |_, _| events += 1).is_ok() && events > 0 {
                        return Ok(number);
                    }
                }
            }
        }
    }
    Ok(0)
}

/// The kind of the trace's clock; an error if the clock does not count nanoseconds.
fn clock(buffer: &TraceBuffer) -> Result<&'static str> {
    match buffer.clock.as_str() {
        "mono" | "mono_raw" | "boot" => Ok("monotonic"),
        clock @ ("counter" | "uptime" | "x86-tsc" | "ppc-tb") => {
            Err(Error::new(ErrorClass::Unsupported, "the trace clock of this recording does not count nanoseconds")
                .of_field("trace_clock", 0, clock.as_bytes())
                .hint("record with `trace-cmd record -C mono -e block`"))
        }
        _ => Ok("relative"),
    }
}

/// The CPU and its number of lost events, from a `stats` text, which begins with `CPU: N`.
fn lost(text: &str) -> Option<(usize, u64)> {
    let cpu = text.trim_start().strip_prefix("CPU:")?.lines().next()?.trim().parse().ok()?;
    Some((cpu, lost_by_counters(text)))
}

impl CpuPageReader {
    fn new(pages: CpuPages) -> Self {
        Self { number: pages.cpu, at: pages.at, end: pages.end, unpacked: Vec::new(), used: 0, latest: 0 }
    }

    fn is_empty(&self) -> bool {
        self.at >= self.end && self.used >= self.unpacked.len()
    }

    /// Reads the next page; returns false if less than a page remains.
    fn page(&mut self, parser: &mut TraceDatParser<File>, compression: TraceDatCompression, page: &mut [u8]) -> Result<bool> {
        if compression == TraceDatCompression::None {
            parser.input.seek(SeekFrom::Start(self.at)).map_err(|error| damaged(&error))?;
            parser.input.read_exact(page).map_err(|error| damaged(&error).at_offset(self.at))?;
            self.at = self.at.saturating_add(page.len() as u64);
            return Ok(true);
        }
        if self.used >= self.unpacked.len() {
            parser.input.seek(SeekFrom::Start(self.at)).map_err(|error| damaged(&error))?;
            self.unpacked = parser.chunk(compression).map_err(|error| error.at_offset(self.at))?;
            self.used = 0;
            self.at = parser.input.stream_position().map_err(|error| damaged(&error))?;
        }
        let left = &self.unpacked[self.used..];
        let whole = left.len() >= page.len();
        if whole {
            page.copy_from_slice(&left[..page.len()]);
        }
        self.used += page.len();
        Ok(whole)
    }
}

impl TraceSource for TraceDatReader {
    fn in_file_order(&self) -> bool {
        false
    }

    fn fill(&mut self, _out: &mut Vec<Request>) -> Result<bool> {
        // This source returns only sorted batches, see `next_sorted`.
        Ok(false)
    }

    fn names(&self) -> (&NameTable, &NameTable) {
        self.pipeline.names()
    }

    fn ledger(&self) -> Ledger {
        self.pipeline.ledger.clone()
    }

    fn header(&self) -> TraceHeader {
        self.header.clone()
    }

    fn tally(&self) -> EventTally {
        self.tally.clone()
    }

    fn progress(&self) -> ReadProgress {
        ReadProgress { done: self.bytes_read, total: Some(self.file_bytes) }
    }

    fn next_sorted(&mut self) -> Option<Result<Option<Batch>>> {
        loop {
            let at_least = if self.ended { 1 } else { BATCH_ROWS };
            let batch = self.pipeline.take_batch(at_least, |_| false, &mut RecordMeter::default());
            self.has_batches |= batch.is_some();
            if self.ended && !self.has_batches {
                match self.count_events() {
                    Ok(tally) => self.tally = tally,
                    Err(error) => return Some(Err(error)),
                }
            }
            if batch.is_some() || self.ended {
                return Some(Ok(batch));
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => self.finish(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The trace formats that this crate adds, for [`ReadOptions::further`].
pub static FORMATS: &[&TraceFormat] = &[&FORMAT];

/// Opens a trace of any format: one of [`FORMATS`] or one that [`TraceReader::open`] knows.
/// Errors: as [`TraceReader::open`].
pub fn open_trace(path: &Path, options: &ReadOptions) -> Result<TraceReader> {
    TraceReader::open(path, &ReadOptions { further: FORMATS, ..options.clone() })
}
