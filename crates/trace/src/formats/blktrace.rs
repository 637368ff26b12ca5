//! blktrace's binary records (`struct blk_io_trace` of `linux/blktrace_api.h`, version 7), in either byte order.
//!
//! One file per processor, `NAME.blktrace.N`: naming one of them, or `NAME`, reads all, merged by time. What
//! `blkparse -d` dumps into one file is read as well. [`crate::Pairer`] brings the events together; records about
//! processes give the names; a gap in a processor's sequence counts as lost.

use std::collections::HashMap;
use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use emmclab_base::{Error, Flags, Kind, NameId, Nanos, Op, Request, Result, SECTOR_BYTES};

use super::format::{Format, ReadOptions, Times};
use super::input::{Input, damaged};
use super::text::{Context, text};
use super::time_unit::TimeUnit;
use crate::batch::BATCH_ROWS;
use crate::header::Header;
use crate::ledger::Ledger;
use crate::names::{Names, dev_t_label};
use crate::pairing::{Event, EventKind, Pairer};
use crate::source::{Progress, Source};

pub(super) static FORMAT: Format = Format {
    name: "blktrace",
    about: "blktrace's binary files, one per processor or dumped into one",
    known_by: "the records' magic number, in either byte order",
    extensions: &[],
    times: Times::Fixed(TimeUnit::Nanos),
    sniff: |head, _| byte_order(head).is_some(),
    open,
    writes: None,
};

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD_BYTES: usize = 48;
const MIDDLE: &str = ".blktrace.";

// Categories, in the upper half of `action`.
const READ_AHEAD: u32 = 1 << 11;
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const SYNC: u32 = 1 << 3;
const COMMAND: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const META: u32 = 1 << 12;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;
/// In the lower half: the payload begins with 8 bytes that name a control group.
const CGROUP: u32 = 1 << 8;
const CGROUP_BYTES: usize = 8;

const NOTIFY_PROCESS: u32 = 0;
const NOTIFY_TIMESTAMP: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

fn byte_order(head: &[u8]) -> Option<ByteOrder> {
    let word: [u8; 4] = head.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(word) & !0xff == MAGIC {
        Some(ByteOrder::Little)
    } else if u32::from_be_bytes(word) & !0xff == MAGIC {
        Some(ByteOrder::Big)
    } else {
        None
    }
}

/// The name before `.blktrace.N`.
fn prefix(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let at = text.rfind(MIDDLE)?;
    let number = text[at + MIDDLE.len()..].split('.').next()?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then(|| text[..at].to_owned())
}

/// The file to open for `path`: itself, or the first processor's where `path` is what they have in common.
pub(super) fn first_of(path: &Path) -> PathBuf {
    if !path.exists()
        && let Some(first) = path.to_str().and_then(|prefix| processors(prefix).into_iter().next())
    {
        return first;
    }
    path.to_owned()
}

/// The files behind `path`: itself, or those of all processors.
pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    let first = first_of(path);
    prefix(&first).map(|prefix| processors(&prefix)).filter(|all| !all.is_empty()).unwrap_or(vec![first])
}

/// All files of a recording, by number of the processor.
fn processors(prefix: &str) -> Vec<PathBuf> {
    let whole = Path::new(prefix);
    let folder = whole.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = format!("{}{MIDDLE}", whole.file_name().unwrap_or_default().to_string_lossy());
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(&stem)?.split('.').next()?.parse().ok()?;
            Some((number, folder.join(name)))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    let path = input.path().to_owned();
    let mut name = input.name();
    let mut meters: Vec<Box<dyn Fn() -> Progress + Send>> = Vec::new();
    let mut files = Vec::new();
    if let Some(prefix) = prefix(&path) {
        name = Path::new(&prefix).file_name().unwrap_or_default().to_string_lossy().into_owned();
        for path in processors(&prefix) {
            let input = Input::open(&path)?;
            // A processor that saw nothing leaves an empty file.
            if !input.head().is_empty() {
                meters.push(Box::new(input.meter()));
                files.push(Records::open(input)?);
            }
        }
    } else {
        meters.push(Box::new(input.meter()));
        files.push(Records::open(input)?);
    }
    Ok(Box::new(Blktrace {
        files,
        meters,
        name,
        lenient: options.lenient,
        context: Context::default(),
        pairer: Pairer::default(),
        commands: HashMap::new(),
        sequences: HashMap::new(),
        wall_clock: None,
        finished: false,
    }))
}

/// One record.
struct Record {
    offset: u64,
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    pid: u32,
    device: u32,
    cpu: u32,
    payload: Vec<u8>,
}

/// The records of one file, with the next one at hand.
struct Records {
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    order: ByteOrder,
    offset: u64,
    next: Option<Record>,
}

impl Records {
    fn open(input: Input) -> Result<Self> {
        let path = input.path().to_owned();
        let order = byte_order(input.head()).ok_or_else(|| {
            Error::new(Kind::Syntax, "does not begin with a blktrace record").in_file(&path).at_offset(0)
        })?;
        let reader: Box<dyn Read + Send> = Box::new(input.into_reader());
        let mut records =
            Self { path, reader: BufReader::with_capacity(1 << 18, reader), order, offset: 0, next: None };
        records.advance()?;
        Ok(records)
    }

    /// Moves on to the next record.
    fn advance(&mut self) -> Result<Option<Record>> {
        let next = self.read().map_err(|error| error.in_file(&self.path).at_offset(self.offset))?;
        if let Some(record) = &next {
            self.offset += (RECORD_BYTES + record.payload.len()) as u64;
        }
        Ok(std::mem::replace(&mut self.next, next))
    }

    fn read(&mut self) -> Result<Option<Record>> {
        let mut raw = [0; RECORD_BYTES];
        let got = self.read_some(&mut raw)?;
        if got == 0 {
            return Ok(None);
        }
        if got < RECORD_BYTES {
            return Err(cut("the file ends in the middle of a record"));
        }
        let order = self.order;
        let short = |at: usize| {
            let word = [raw[at], raw[at + 1]];
            if order == ByteOrder::Little { u16::from_le_bytes(word) } else { u16::from_be_bytes(word) }
        };
        let word = |at: usize| match order {
            ByteOrder::Little => u32::from(short(at)) | u32::from(short(at + 2)) << 16,
            ByteOrder::Big => u32::from(short(at)) << 16 | u32::from(short(at + 2)),
        };
        let long = |at: usize| match order {
            ByteOrder::Little => u64::from(word(at)) | u64::from(word(at + 4)) << 32,
            ByteOrder::Big => u64::from(word(at)) << 32 | u64::from(word(at + 4)),
        };
        let magic = word(0);
        if magic & !0xff != MAGIC {
            return Err(Error::new(Kind::Syntax, "a record does not begin with its magic number")
                .of_field("magic", 0, format!("{magic:#010x}").as_bytes())
                .hint("copy it again, as binary: the file is damaged, or was copied as text"));
        }
        if magic & 0xff != VERSION {
            return Err(Error::new(Kind::Unsupported, format!("is not version {VERSION}")).of_field(
                "version",
                0,
                (magic & 0xff).to_string().as_bytes(),
            ));
        }
        let mut payload = vec![0; usize::from(short(46))];
        if self.read_some(&mut payload)? < payload.len() {
            return Err(cut("the file ends in the middle of a payload"));
        }
        Ok(Some(Record {
            offset: self.offset,
            sequence: word(4),
            time: long(8),
            sector: long(16),
            bytes: word(24),
            action: word(28),
            pid: word(32),
            device: word(36),
            cpu: word(40),
            payload,
        }))
    }

    /// Fills the buffer as far as the file goes.
    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match self.reader.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(damaged(&self.path, error)),
            }
        }
        Ok(got)
    }
}

fn cut(problem: &str) -> Error {
    Error::new(Kind::Truncated, problem)
        .hint("give --lenient to read up to there: the recording was cut short")
}

struct Blktrace {
    files: Vec<Records>,
    meters: Vec<Box<dyn Fn() -> Progress + Send>>,
    name: String,
    lenient: bool,
    context: Context,
    pairer: Pairer,
    commands: HashMap<u32, NameId>,
    sequences: HashMap<u32, u32>,
    wall_clock: Option<(u32, u32)>,
    finished: bool,
}

impl Blktrace {
    /// The next record over all files by time, then sequence, then processor.
    fn next(&mut self) -> Result<Option<Record>> {
        let earliest = self
            .files
            .iter()
            .enumerate()
            .filter_map(|(i, file)| file.next.as_ref().map(|next| (next.time, next.sequence, i)))
            .min();
        let Some((_, _, file)) = earliest else { return Ok(None) };
        match self.files[file].advance() {
            Err(_) if self.lenient => {
                // The start of the next record cannot be found.
                self.context.ledger.skipped += 1;
                let last = self.files[file].next.take();
                Ok(last)
            }
            result => result,
        }
    }

    fn notify(&mut self, record: &Record, order: ByteOrder) {
        let kind = record.action & 0xffff & !CGROUP;
        let skip = if record.action & CGROUP == 0 { 0 } else { CGROUP_BYTES };
        let payload = record.payload.get(skip..).unwrap_or(&[]);
        if kind == NOTIFY_PROCESS {
            let end = memchr::memchr(0, payload).unwrap_or(payload.len());
            let name = self.context.processes.intern(&text(&payload[..end]));
            self.commands.insert(record.pid, name);
        } else if kind == NOTIFY_TIMESTAMP
            && let Some(Ok(raw)) = payload.get(..8).map(<[u8; 8]>::try_from)
        {
            let word = |at: usize| {
                let word = [raw[at], raw[at + 1], raw[at + 2], raw[at + 3]];
                if order == ByteOrder::Little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
            };
            self.wall_clock.get_or_insert((word(0), word(4)));
        }
    }

    fn take(&mut self, record: &Record, order: ByteOrder, out: &mut Vec<Request>) -> Result<()> {
        let category = record.action >> 16;
        if category & NOTIFY != 0 {
            self.notify(record, order);
            return Ok(());
        }
        self.context.ledger.seen += 1;
        if let Some(before) = self.sequences.insert(record.cpu, record.sequence) {
            self.context.ledger.lost += u64::from(record.sequence.saturating_sub(before).saturating_sub(1));
        }
        let Some(kind) = event_kind(record).filter(|_| category & COMMAND == 0) else {
            self.context.ledger.skipped += 1;
            return Ok(());
        };
        let time = i64::try_from(record.time).map_err(|_| {
            Error::new(Kind::Value, "is longer than 292 years").of_field(
                "time",
                0,
                record.time.to_string().as_bytes(),
            )
        })?;
        let label = dev_t_label(record.device);
        let (op, flags) = operation(category, record.bytes);
        let event = Event {
            time: Nanos(time),
            kind,
            device: self.context.devices.intern(&label),
            op,
            flags,
            sector: record.sector,
            sectors: (u64::from(record.bytes).div_ceil(SECTOR_BYTES)) as u32,
            pid: Some(record.pid as i32).filter(|pid| *pid != i32::MIN),
            process: self.commands.get(&record.pid).copied(),
        };
        self.pairer.feed(&event, &mut self.context.ledger, out);
        Ok(())
    }
}

/// `__BLK_TA_*`.
fn event_kind(record: &Record) -> Option<EventKind> {
    let skip = if record.action & CGROUP == 0 { 0 } else { CGROUP_BYTES };
    Some(match record.action & 0xffff & !CGROUP {
        1 => EventKind::Queue,
        2 => EventKind::BackMerge,
        3 => EventKind::FrontMerge,
        4 => EventKind::GetRequest,
        6 => EventKind::Requeue,
        7 => EventKind::Issue,
        8 => EventKind::Complete,
        12 => EventKind::Insert,
        // The kernel writes the second sector in network order.
        13 => EventKind::Split(u64::from_be_bytes(record.payload.get(skip..skip + 8)?.try_into().ok()?)),
        _ => return None,
    })
}

/// Operation and flags by category. The kernel marks its own flush as a read of nothing with `FLUSH`.
fn operation(category: u32, bytes: u32) -> (Op, Flags) {
    let mut flags = Flags::default();
    for (bit, flag) in [
        (FLUSH, Flags::PREFLUSH),
        (SYNC, Flags::SYNC),
        (META, Flags::META),
        (READ_AHEAD, Flags::READAHEAD),
        (FUA, Flags::FUA),
    ] {
        if category & bit != 0 {
            flags = flags.union(flag);
        }
    }
    let op = if category & DISCARD != 0 {
        Op::Discard
    } else if category & WRITE != 0 {
        Op::Write
    } else if category & FLUSH != 0 && bytes == 0 {
        Op::Flush
    } else {
        Op::Read
    };
    (op, flags)
}

impl Source for Blktrace {
    fn in_file_order(&self) -> bool {
        false
    }

    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let goal = out.len() + BATCH_ROWS;
        let order = self.files.first().map_or(ByteOrder::Little, |file| file.order);
        while out.len() < goal {
            let Some(record) = self.next()? else {
                if !self.finished {
                    self.finished = true;
                    self.pairer.finish(&mut self.context.ledger, out);
                }
                return Ok(false);
            };
            match self.take(&record, order, out) {
                Err(_) if self.lenient => self.context.ledger.skipped += 1,
                result => result.map_err(|error| error.at_offset(record.offset))?,
            }
        }
        Ok(true)
    }

    fn names(&self) -> (&Names, &Names) {
        (&self.context.processes, &self.context.devices)
    }

    fn ledger(&self) -> Ledger {
        self.context.ledger.clone()
    }

    fn header(&self) -> Header {
        let note = self.wall_clock.map(|(s, ns)| format!("recording began at Unix time {s}.{ns:09}"));
        Header {
            source: self.name.clone(),
            format: FORMAT.name.into(),
            clock: "monotonic".into(),
            note,
            ..Header::default()
        }
    }

    fn progress(&self) -> Progress {
        let mut all = Progress { done: 0, total: Some(0) };
        for meter in &self.meters {
            let one = meter();
            all.done += one.done;
            all.total = all.total.zip(one.total).map(|(a, b)| a + b);
        }
        all
    }
}
