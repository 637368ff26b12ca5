//! blktrace's binary records (`struct blk_io_trace` and `blk_io_trace2` of `linux/blktrace_api.h`, versions 7 and 8), in either byte
//! order.
//!
//! There is one file per CPU, `NAME.blktrace.N`. The path of one of them, or `NAME`, reads all, merged by time; the note of the
//! trace states which are missing. The single file of `blkparse -d` is read as well. [`crate::EventPairer`] combines the events into
//! requests. Names are read from the records about processes; gaps in a CPU's sequence numbers are counted as lost. Commands to
//! zones, which version 8 records, are not requests: the note names and counts them. A zone append is a write at the address
//! that its completion states.

mod recording;
mod records;

use std::collections::HashMap;
use std::path::Path;

use super::line_format::{ParseContext, text};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{
    BATCH_ROWS, BlockEventKind, BlockLayerEvent, DecompressedInput, Error, ErrorClass, EventPairer, EventTally, Ledger,
    NameId, NameTable, Nanos, Op, ReadOptions, ReadProgress, RecordedFeatures, Request, RequestFlags, Result,
    SECTOR_BYTES, TraceColumn, TraceHeader, TraceSource, ZoneCommand, dev_t_label,
};
use recording::{MissingCpus, prefix, processors};
pub(super) use recording::{files, first_of};
use records::{BlktraceByteOrder, BlktraceFileReader, BlktraceRecord, byte_order};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "blktrace",
    about: "blktrace's binary files, one per processor or dumped into one",
    known_by: "the records' magic number, in either byte order",
    origin: FormatOrigin {
        from: "`blktrace -d /dev/DISK -o NAME`, which writes `NAME.blktrace.N` for each processor; or one file of `blkparse -i NAME -d FILE`",
        gives: &[
            TraceColumn::Start,
            TraceColumn::Issue,
            TraceColumn::Complete,
            TraceColumn::Flags,
            TraceColumn::Pid,
            TraceColumn::Process,
            TraceColumn::Device,
        ],
        unknown: "the time of the device itself: the driver's events are not in it",
    },
    extensions: &[],
    recorded: RecordedFeatures::BLOCK_LAYER,
    times: FormatTimes::Fixed(TimeUnit::Nanos),
    sniff: |head, _| byte_order(head).is_some(),
    open,
    writes: None,
};

// Categories, above the lower 16 bits of `action`.
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
/// In the lower 16 bits: the payload begins with the 8-byte id of a control group.
const CGROUP: u64 = 1 << 8;
const CGROUP_BYTES: usize = 8;

/// Letters of the actions (`__BLK_TA_*`), as blkparse prints them.
const ACTIONS: [&str; 18] =
    ["other", "Q", "M", "F", "G", "S", "R", "D", "C", "P", "U", "UT", "I", "X", "B", "A", "abort", "driver data"];

/// I/O was passed on to another device (`__BLK_TA_REMAP`).
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
            // A CPU without events has an empty file.
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
    /// Number of records by action, in the order of [`ACTIONS`].
    actions: [u64; ACTIONS.len()],
    commands: HashMap<u32, NameId>,
    sequences: HashMap<u32, u32>,
    wall_clock: Option<(u32, u32)>,
    finished: bool,
}

impl BlktraceSource {
    /// The next record of all files, in the order of time, then sequence, then CPU.
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
                // The start of the next record cannot be found.
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
            let word = |at: usize| {
                let word = [raw[at], raw[at + 1], raw[at + 2], raw[at + 3]];
                if order == BlktraceByteOrder::Little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
            };
            self.wall_clock.get_or_insert((word(0), word(4)));
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
            Error::new(ErrorClass::Value, "is longer than 292 years").of_field(
                "time",
                0,
                record.time.to_string().as_bytes(),
            )
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
            (Some(kind), Some(command)) => self.pairer.zone(command, kind),
            // The payload is the command itself.
            (Some(kind), None) => self.pairer.packet(payload.first().copied(), kind),
            (None, _) if record.action & 0xffff & !CGROUP == REMAP => {
                // In network order.
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
        let notes = [began, self.missing.note(&self.name, complete), self.pairer.note()];
        let notes: Vec<_> = notes.into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// Length of the id of a control group before the payload.
fn skipped_bytes(record: &BlktraceRecord) -> usize {
    if record.action & CGROUP == 0 { 0 } else { CGROUP_BYTES }
}

/// The kind of an event, from its `__BLK_TA_*`; `None` for other actions.
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
        // The kernel writes the second sector in network order.
        13 => BlockEventKind::Split(u64::from_be_bytes(record.payload.get(skip..skip + 8)?.try_into().ok()?)),
        _ => return None,
    })
}

/// The command to a zone that these categories state; `None` if it is none.
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

/// Operation and flags from the categories. The kernel records its own flush as a read of 0 bytes with `FLUSH`.
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
        if category & bit != 0 {
            flags = flags.union(flag);
        }
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
        tally.packets = self.pairer.packets();
        tally
    }

    fn progress(&self) -> ReadProgress {
        let mut all = ReadProgress { done: 0, total: Some(0) };
        for meter in &self.meters {
            let one = meter();
            all.done += one.done;
            all.total = all.total.zip(one.total).map(|(a, b)| a + b);
        }
        all
    }
}
