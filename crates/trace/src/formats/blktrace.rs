//! blktrace's binary records (`struct blk_io_trace` and `blk_io_trace2` of `linux/blktrace_api.h`, versions 7 and 8), in either byte order.
//!
//! There is a file for each CPU, `NAME.blktrace.N`. For the path of one of them or for `NAME`, all are read and merged by time; the note of
//! the trace states which are missing. The single file of `blkparse -d` is read, too. [`crate::EventPairer`] combines the events into
//! requests. Names come from the records about processes; gaps in the sequence numbers of a CPU are counted as lost. Zone commands, which
//! version 8 records, are not requests: the note lists and counts them. A zone append is a write at the address in its completion.

use std::collections::HashMap;
use std::fs;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use super::binary::bytes;
use super::input::{damaged, read_some};
use super::prelude::*;
use crate::{BATCH_ROWS, BlockEventKind, BlockLayerEvent, EventPairer, NameId, ZoneCommand, dev_t_label};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "blktrace",
    about: "blktrace's binary files, one per processor or dumped into one",
    known_by: "the records' magic number, in either byte order",
    from: "`blktrace -d /dev/DISK -o NAME`, which writes `NAME.blktrace.N` for each processor; or one file of `blkparse -i NAME -d FILE`",
    gives: TraceColumn::OF_BLOCK_LAYER,
    unknown: "the time of the device itself: the driver's events are not in it",
    recorded: RecordedFeatures::BLOCK_LAYER,
    times: FormatTimes::Fixed(TimeUnit::Nanos),
    sniff: |head, _| byte_order(head).is_some(),
    open,
    ..TraceFormat::READ_ONLY
};

// Category bits of a blktrace event. They are the bits of `action` above the lower 16 bits, shifted right by 16.
const READ_AHEAD: u64 = 1 << 11;
const WRITE: u64 = 1 << 1;
const FLUSH: u64 = 1 << 2;
const SYNC: u64 = 1 << 3;
const COMMAND: u64 = 1 << 9;
const NOTIFY: u64 = 1 << 10;
const META: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const FUA: u64 = 1 << 15;
const ZONE_APPEND: u64 = 1 << 16;
const WRITE_ZEROES: u64 = 1 << 22;
/// Flag in the lower 16 bits of the action: the payload begins with the 8-byte id of a control group.
const CGROUP: u64 = 1 << 8;
const CGROUP_BYTES: usize = 8;

/// Letters of the actions (`__BLK_TA_*`), as blkparse prints them.
const ACTIONS: [&str; 18] =
    ["other", "Q", "M", "F", "G", "S", "R", "D", "C", "P", "U", "UT", "I", "X", "B", "A", "abort", "driver data"];

/// Action of I/O that was passed on to another device (`__BLK_TA_REMAP`).
const REMAP: u64 = 15;

const NOTIFY_PROCESS: u64 = 0;
const NOTIFY_TIMESTAMP: u64 = 1;

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let path = input.path().to_owned();
    let mut name = input.name();
    let mut meters: Vec<Box<dyn Fn() -> ReadProgress + Send>> = Vec::new();
    let mut files = Vec::new();
    let mut missing = MissingCpus::default();
    if let Some(prefix) = prefix(&path) {
        missing = MissingCpus::of(&prefix);
        name = Path::new(&prefix).file_name().unwrap_or_default().to_string_lossy().into_owned();
        for path in processors(&prefix) {
            let input = DecompressedInput::open(&path)?;
            // The file of a CPU without events is empty.
            if !input.head().is_empty() {
                meters.push(Box::new(input.meter()));
                files.push(BlktraceFileReader::open(input)?);
            }
        }
    } else {
        meters.push(Box::new(input.meter()));
        files.push(BlktraceFileReader::open(input)?);
    }
    Ok(Box::new(BlktraceSource {
        files,
        meters,
        name,
        missing,
        lenient: options.lenient,
        context: ParseContext::default(),
        pairer: EventPairer::default(),
        actions: [0; ACTIONS.len()],
        commands: HashMap::new(),
        sequences: HashMap::new(),
        wall_clock: None,
        finished: false,
    }))
}

struct BlktraceSource {
    files: Vec<BlktraceFileReader>,
    meters: Vec<Box<dyn Fn() -> ReadProgress + Send>>,
    name: String,
    missing: MissingCpus,
    lenient: bool,
    context: ParseContext,
    pairer: EventPairer,
    /// Number of records of each action, in the order of [`ACTIONS`].
    actions: [u64; ACTIONS.len()],
    commands: HashMap<u32, NameId>,
    sequences: HashMap<u32, u32>,
    wall_clock: Option<(u32, u32)>,
    finished: bool,
}

impl BlktraceSource {
    /// The next record of all files, in the order of time, then sequence number, then CPU.
    fn next(&mut self) -> Result<Option<BlktraceRecord>> {
        let earliest = self
            .files
            .iter()
            .enumerate()
            .filter_map(|(i, file)| file.next.as_ref().map(|next| (next.time, next.sequence, i)))
            .min();
        let Some((_, _, file)) = earliest else { return Ok(None) };
        match self.files[file].advance() {
            Err(_) if self.lenient => {
                // After a damaged record, the start of the next one is unknown, so this file ends here.
                self.context.ledger.skipped += 1;
                let last = self.files[file].next.take();
                Ok(last)
            }
            result => result,
        }
    }

    fn notify(&mut self, record: &BlktraceRecord, order: BlktraceByteOrder) {
        let kind = record.action & 0xffff & !CGROUP;
        let payload = record.payload.get(skipped_bytes(record)..).unwrap_or(&[]);
        if kind == NOTIFY_PROCESS {
            let end = memchr::memchr(0, payload).unwrap_or(payload.len());
            let name = self.context.processes.intern(&text(&payload[..end]));
            self.commands.insert(record.pid, name);
        } else if kind == NOTIFY_TIMESTAMP
            && let Some(Ok(raw)) = payload.get(..8).map(<[u8; 8]>::try_from)
        {
            self.wall_clock.get_or_insert((order.word(&raw, 0), order.word(&raw, 4)));
        }
    }

    fn take(&mut self, record: &BlktraceRecord, order: BlktraceByteOrder, out: &mut Vec<Request>) -> Result<()> {
        let category = record.action >> 16;
        if category & NOTIFY != 0 {
            self.notify(record, order);
            return Ok(());
        }
        self.context.ledger.seen += 1;
        let action = (record.action & 0xffff & !CGROUP) as usize;
        self.actions[action.min(ACTIONS.len() - 1)] += 1;
        if let Some(before) = self.sequences.insert(record.cpu, record.sequence) {
            self.context.ledger.lost += u64::from(record.sequence.saturating_sub(before).saturating_sub(1));
        }
        let kind = event_kind(record);
        let zone = zone_command(category);
        let Some(kind) = kind.filter(|_| category & COMMAND == 0 && zone.is_none()) else {
            self.context.ledger.skipped += 1;
            self.not_a_request(record, kind, zone);
            return Ok(());
        };
        let time = i64::try_from(record.time).map_err(|_| {
            Error::new(ErrorClass::Value, "the time exceeds 292 years").of_field("time", 0, record.time.to_string().as_bytes())
        })?;
        let label = dev_t_label(record.device);
        let (op, flags) = operation(category, record.bytes);
        let error = if kind == BlockEventKind::Complete { i32::from(record.error.cast_signed()) } else { 0 };
        let event = BlockLayerEvent {
            time: Nanos(time),
            kind,
            device: self.context.devices.intern(&label),
            op,
            flags,
            sector: record.sector,
            sectors: (u64::from(record.bytes).div_ceil(SECTOR_BYTES)) as u32,
            pid: Some(record.pid as i32).filter(|pid| *pid != i32::MIN),
            process: self.commands.get(&record.pid).copied(),
            error: -error.abs(),
            zeroes: category & WRITE_ZEROES != 0,
        };
        self.pairer.feed(&event, &mut self.context.ledger, out);
        Ok(())
    }

    /// Counts a record that is not a step of a request.
    fn not_a_request(&mut self, record: &BlktraceRecord, kind: Option<BlockEventKind>, zone: Option<ZoneCommand>) {
        let payload = record.payload.get(skipped_bytes(record)..).unwrap_or(&[]);
        match (kind, zone) {
            (Some(kind), Some(command)) => self.pairer.special.zones.see(command, kind),
            // The payload contains the operation code and the rest of the SCSI command.
            (Some(kind), None) => self.pairer.special.packets.see(payload.first().copied(), kind),
            (None, _) if record.action & 0xffff & !CGROUP == REMAP => {
                // The device number is stored in network byte order.
                let from = payload.get(..4).and_then(|from| from.try_into().ok()).map(u32::from_be_bytes);
                if let Some(from) = from.and_then(|from| self.context.devices.id(&dev_t_label(from))) {
                    self.pairer.remap(from);
                }
            }
            (None, _) => {}
        }
    }

    /// The note for the header of the trace.
    fn note(&self) -> Option<String> {
        let ledger = &self.context.ledger;
        let complete = ledger.paired > 0 && ledger.unpaired == 0;
        let began = self.wall_clock.map(|(s, ns)| format!("recording began at Unix time {s}.{ns:09}"));
        let notes = [began, self.missing.note(&self.name, complete), self.pairer.special.note()];
        let notes: Vec<_> = notes.into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// Length in bytes of the id of a control group, which precedes the payload.
fn skipped_bytes(record: &BlktraceRecord) -> usize {
    if record.action & CGROUP == 0 { 0 } else { CGROUP_BYTES }
}

/// The kind of an event by its `__BLK_TA_*`; `None` for other actions.
fn event_kind(record: &BlktraceRecord) -> Option<BlockEventKind> {
    let skip = skipped_bytes(record);
    Some(match record.action & 0xffff & !CGROUP {
        1 => BlockEventKind::Queue,
        2 => BlockEventKind::BackMerge,
        3 => BlockEventKind::FrontMerge,
        4 => BlockEventKind::GetRequest,
        6 => BlockEventKind::Requeue,
        7 => BlockEventKind::Issue,
        8 => BlockEventKind::Complete,
        12 => BlockEventKind::Insert,
        // The kernel stores the second sector in network byte order.
        13 => BlockEventKind::Split(u64::from_be_bytes(record.payload.get(skip..skip + 8)?.try_into().ok()?)),
        _ => return None,
    })
}

/// The zone command that the categories of a blktrace record describe; `None` if they describe none.
fn zone_command(category: u64) -> Option<ZoneCommand> {
    const BITS: [(u64, ZoneCommand); 5] = [
        (1 << 17, ZoneCommand::Reset),
        (1 << 18, ZoneCommand::ResetAll),
        (1 << 19, ZoneCommand::Finish),
        (1 << 20, ZoneCommand::Open),
        (1 << 21, ZoneCommand::Close),
    ];
    BITS.into_iter().find(|(bit, _)| category & bit != 0).map(|(_, command)| command)
}

/// Operation and flags that the categories of a blktrace record describe. The kernel records its own flush as a read of 0 bytes with
/// `FLUSH`.
fn operation(category: u64, bytes: u32) -> (Op, RequestFlags) {
    let mut flags = RequestFlags::default();
    for (bit, flag) in [
        (FLUSH, RequestFlags::PREFLUSH),
        (SYNC, RequestFlags::SYNC),
        (META, RequestFlags::META),
        (READ_AHEAD, RequestFlags::READAHEAD),
        (FUA, RequestFlags::FUA),
        (ZONE_APPEND, RequestFlags::APPEND),
    ] {
        flags.set(flag, category & bit != 0);
    }
    let op = if category & DISCARD != 0 {
        Op::Discard
    } else if category & (WRITE | WRITE_ZEROES) != 0 {
        Op::Write
    } else if category & FLUSH != 0 && bytes == 0 {
        Op::Flush
    } else {
        Op::Read
    };
    (op, flags)
}

impl TraceSource for BlktraceSource {
    fn in_file_order(&self) -> bool {
        false
    }

    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let goal = out.len() + BATCH_ROWS;
        let order = self.files.first().map_or(BlktraceByteOrder::Little, |file| file.order);
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

    fn names(&self) -> (&NameTable, &NameTable) {
        (&self.context.processes, &self.context.devices)
    }

    fn ledger(&self) -> Ledger {
        self.context.ledger.clone()
    }

    fn header(&self) -> TraceHeader {
        let note = self.note();
        TraceHeader {
            source: self.name.clone(),
            format: FORMAT.name.into(),
            clock: "monotonic".into(),
            note,
            ..TraceHeader::default()
        }
    }

    fn tally(&self) -> EventTally {
        let mut tally = EventTally::new(ACTIONS.into_iter().zip(self.actions));
        tally.missing = self.missing.note(&self.name, false);
        tally.packets = self.pairer.special.packets_text();
        tally
    }

    fn progress(&self) -> ReadProgress {
        let mut all = ReadProgress { done: 0, total: Some(0) };
        for meter in &self.meters {
            let file = meter();
            all.done += file.done;
            all.total = all.total.zip(file.total).map(|(a, b)| a + b);
        }
        all
    }
}

const MIDDLE: &str = ".blktrace.";

/// The path before `.blktrace.N`; `None` for other paths.
pub(super) fn prefix(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let at = text.rfind(MIDDLE)?;
    let number = text[at + MIDDLE.len()..].split('.').next()?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then(|| text[..at].to_owned())
}

/// The file to open for `path`: `path` itself, or the file of the first CPU if `path` is the common prefix of the files.
pub(super) fn first_of(path: &Path) -> PathBuf {
    if !path.exists()
        && let Some(first) = path.to_str().and_then(|prefix| processors(prefix).into_iter().next())
    {
        return first;
    }
    path.to_owned()
}

/// The files of the recording at `path`: `path` itself, or the files of all CPUs.
pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    let first = first_of(path);
    prefix(&first).map(|prefix| processors(&prefix)).filter(|all| !all.is_empty()).unwrap_or(vec![first])
}

/// All files of a recording, in the order of CPU numbers.
pub(super) fn processors(prefix: &str) -> Vec<PathBuf> {
    numbered(prefix).into_iter().map(|(_, path)| path).collect()
}

/// The files of a recording, each with its CPU number.
fn numbered(prefix: &str) -> Vec<(u32, PathBuf)> {
    let whole = Path::new(prefix);
    let folder = whole.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = format!("{}{MIDDLE}", whole.file_name().unwrap_or_default().to_string_lossy());
    let mut files: Vec<(u32, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(&stem)?.split('.').next()?.parse().ok()?;
            Some((number, folder.join(name)))
        })
        .collect();
    files.sort();
    files
}

/// The CPUs whose files are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MissingCpus {
    /// CPU of the recording's only file in this folder; other CPUs may have been recorded.
    alone: Option<u32>,
    /// CPUs whose files do not exist although the file of a CPU with a higher number exists.
    gaps: Vec<u32>,
}

impl MissingCpus {
    /// Determines the CPUs whose files are missing from a recording.
    pub fn of(prefix: &str) -> Self {
        /// Upper limit of CPU numbers.
        const MOST: u32 = 1 << 13;
        let numbers: Vec<u32> = numbered(prefix).into_iter().map(|(number, _)| number).collect();
        match numbers.as_slice() {
            [only] => Self { alone: Some(*only), gaps: Vec::new() },
            [.., last] => {
                let gaps = (0..(*last).min(MOST)).filter(|number| numbers.binary_search(number).is_err()).collect();
                Self { alone: None, gaps }
            }
            [] => Self::default(),
        }
    }

    /// A sentence on the missing files; `None` if none is missing. `complete` states that all requests have an issue and a completion. In
    /// this case, a single file counts as the whole recording.
    pub fn note(&self, prefix: &str, complete: bool) -> Option<String> {
        const NAMED: usize = 8;
        if let Some(only) = self.alone.filter(|_| !complete) {
            return Some(format!(
                "only the file of processor {only} exists here; the events of others are missing: copy all of {prefix}{MIDDLE}*"
            ));
        }
        if self.gaps.is_empty() {
            return None;
        }
        let named: Vec<_> = self.gaps.iter().take(NAMED).map(u32::to_string).collect();
        let more = if self.gaps.len() > NAMED { ", ..." } else { "" };
        Some(format!("the files of processors {}{more} are missing, and with them their events", named.join(", ")))
    }
}

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD_BYTES: usize = 48;
/// `struct blk_io_trace2` of Linux 6.19.
const WIDE_VERSION: u32 = 8;
const WIDE_RECORD_BYTES: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlktraceByteOrder {
    Little,
    Big,
}

impl BlktraceByteOrder {
    /// The `N` bytes of a number at `at`, the lowest first.
    fn bytes<const N: usize>(self, raw: &[u8], at: usize) -> [u8; N] {
        let mut bytes = bytes(raw, at);
        if self == BlktraceByteOrder::Big {
            bytes.reverse();
        }
        bytes
    }

    fn word(self, raw: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(raw, at))
    }
}

/// The byte order of a file; `None` if it does not begin with a record.
fn byte_order(head: &[u8]) -> Option<BlktraceByteOrder> {
    [BlktraceByteOrder::Little, BlktraceByteOrder::Big].into_iter().find(|order| order.word(head, 0) & !0xff == MAGIC)
}

struct BlktraceRecord {
    pub offset: u64,
    pub sequence: u32,
    pub time: u64,
    pub sector: u64,
    pub bytes: u32,
    /// The action in the lower 16 bits, categories above them.
    pub action: u64,
    pub pid: u32,
    pub device: u32,
    pub cpu: u32,
    /// For a completion, the lower 16 bits of the negative error code; 0 if it succeeded.
    pub error: u16,
    pub payload: Vec<u8>,
}

/// Reads the records of a file, one record ahead.
struct BlktraceFileReader {
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    pub order: BlktraceByteOrder,
    offset: u64,
    record_bytes: usize,
    pub next: Option<BlktraceRecord>,
}

impl BlktraceFileReader {
    pub fn open(input: DecompressedInput) -> Result<Self> {
        let path = input.path().to_owned();
        let order = byte_order(input.head())
            .ok_or_else(|| Error::new(ErrorClass::Syntax, "the file has no blktrace record").in_file(&path).at_offset(0))?;
        let reader: Box<dyn Read + Send> = Box::new(input.into_reader());
        let mut records = Self {
            path,
            reader: BufReader::with_capacity(1 << 18, reader),
            order,
            offset: 0,
            record_bytes: RECORD_BYTES,
            next: None,
        };
        records.advance()?;
        Ok(records)
    }

    /// Returns the next record, and reads the one after it.
    pub fn advance(&mut self) -> Result<Option<BlktraceRecord>> {
        let next = self.read().map_err(|error| error.in_file(&self.path).at_offset(self.offset))?;
        if let Some(record) = &next {
            self.offset += (self.record_bytes + record.payload.len()) as u64;
        }
        Ok(std::mem::replace(&mut self.next, next))
    }

    fn read(&mut self) -> Result<Option<BlktraceRecord>> {
        let mut raw = [0; WIDE_RECORD_BYTES];
        let got = self.read_some(&mut raw[..RECORD_BYTES])?;
        if got == 0 {
            return Ok(None);
        }
        if got < RECORD_BYTES {
            return Err(cut("the file ends in the middle of a record"));
        }
        let version = self.version(&raw)?;
        self.record_bytes = RECORD_BYTES;
        if version == WIDE_VERSION {
            self.record_bytes = WIDE_RECORD_BYTES;
            if self.read_some(&mut raw[RECORD_BYTES..])? < WIDE_RECORD_BYTES - RECORD_BYTES {
                return Err(cut("the file ends in the middle of a record"));
            }
        }
        let order = self.order;
        let short = |at| u16::from_le_bytes(order.bytes(&raw, at));
        let word = |at| order.word(&raw, at);
        let long = |at| u64::from_le_bytes(order.bytes(&raw, at));
        // In version 8 the action has 64 bits and follows the process id.
        let wide = version == WIDE_VERSION;
        let [pid, device, cpu, error, length] = if wide { [28, 40, 44, 48, 50] } else { [32, 36, 40, 44, 46] };
        let action = if wide { long(32) } else { u64::from(word(28)) };
        let mut payload = vec![0; usize::from(short(length))];
        if self.read_some(&mut payload)? < payload.len() {
            return Err(cut("the file ends in the middle of a payload"));
        }
        Ok(Some(BlktraceRecord {
            offset: self.offset,
            sequence: word(4),
            time: long(8),
            sector: long(16),
            bytes: word(24),
            action,
            pid: word(pid),
            device: word(device),
            cpu: word(cpu),
            error: short(error),
            payload,
        }))
    }

    fn version(&self, raw: &[u8; WIDE_RECORD_BYTES]) -> Result<u32> {
        let magic = self.order.word(raw, 0);
        if magic & !0xff != MAGIC {
            return Err(Error::new(ErrorClass::Syntax, "a record does not begin with the magic number")
                .of_field("magic", 0, format!("{magic:#010x}").as_bytes())
                .hint("copy the file again in binary mode: it is damaged or was copied as text"));
        }
        let version = magic & 0xff;
        if ![VERSION, WIDE_VERSION].contains(&version) {
            return Err(Error::new(ErrorClass::Unsupported, format!("the blktrace version must be {VERSION} or {WIDE_VERSION}"))
                .of_field("version", 0, version.to_string().as_bytes()));
        }
        Ok(version)
    }

    /// Fills the buffer except at the end of the file; returns the number of bytes.
    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        read_some(&mut self.reader, buffer).map_err(|(_, error)| damaged(&self.path, error))
    }
}

fn cut(problem: &str) -> Error {
    Error::new(ErrorClass::Truncated, problem).hint("the recording is incomplete: use --lenient to read the part before its end")
}
