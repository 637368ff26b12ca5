//! Perfetto traces (`.perfetto-trace`, `.pftrace`): block events of the kernel's tracer in protobuf packets. Source:
//! `protos/perfetto/trace/trace.proto` and its imports in the repository of Perfetto.
//!
//! A file is a sequence of packets, some of which are compressed together. A bundle contains ftrace events of one CPU, and the events of a
//! CPU are in order. They are merged by time in a window, and [`EventMatcher`] combines them into requests. Process names come from the
//! process tree if the trace has one. Other contents of a trace are skipped.
//!
//! Files that are written in this format show requests in Perfetto's UI. They are not recordings and cannot be read back.

mod clock;
mod event;
mod names;
mod slice_writer;
mod wire;

use std::io::{self, Read};

use super::prelude::*;
use crate::{BATCH_ROWS, BlockLayerEvent, CpuStreamMerge, DecodedEvent, EventMatcher, NameId, dev_t_label, unfilled};
use clock::{EventLosses, PerfettoClocks};
use event::{DecodedEventKind, DecodedFtraceEvent, FtraceDecoder};
use names::ProcessNames;
use wire::{CountingReader, WireFields, next_packet};

pub use slice_writer::{RequestSender, picture_file};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "perfetto",
    about: "Perfetto traces (.perfetto-trace, .pftrace): ftrace block events are read, slices for its UI written",
    known_by: "protobuf packets whose fields are consistent",
    from: "`perfetto -c CONFIG --txt -o FILE` with `ftrace_events: \"block/*\"` ([guide](../guides/read-what-others-recorded.md#perfetto))",
    gives: TraceColumn::OF_EVENTS,
    unknown: "`served_ns` without the events of the driver; the wait in the queue without `block_bio_queue`",
    extensions: slice_writer::EXTENSIONS,
    recorded: RecordedFeatures::BLOCK_EVENTS,
    times: FormatTimes::Fixed(TimeUnit::Nanos),
    sniff: |head, _| looks_like(head),
    open: |input, options| Ok(Box::new(PerfettoSource::open(input, options))),
    writes: Some((slice_writer::HOLDS, slice_writer::create)),
};

/// Number of events between two rounds of the merge. Simultaneous events of two CPUs may be at most this many events apart in the file.
const WINDOW: usize = 1 << 17;

/// Fields of `TracePacket`.
mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const TRACE_CONFIG: u32 = 33;
    pub(super) const FTRACE_STATS: u32 = 34;
    pub(super) const SYNCHRONIZATION_MARKER: u32 = 36;
    pub(super) const PREVIOUS_DROPPED: u32 = 42;
    pub(super) const COMPRESSED: u32 = 50;
}

/// Fields of `FtraceEventBundle`.
mod bundle {
    pub(super) const CPU: u32 = 1;
    pub(super) const EVENT: u32 = 2;
    pub(super) const LOST_EVENTS: u32 = 3;
    pub(super) const COMPACT_SCHED: u32 = 4;
    pub(super) const CLOCK: u32 = 5;
    pub(super) const FTRACE_TIME: u32 = 6;
    pub(super) const BOOT_TIME: u32 = 7;
    pub(super) const GENERIC_DESCRIPTION: u32 = 11;
}

/// Whether a file begins with packets: all fields of the first packets must be valid, and one of them must be known.
fn looks_like(head: &[u8]) -> bool {
    const FIRST: usize = 8;
    let is_known = |number: u32| {
        let events = matches!(number, packet::FTRACE_EVENTS | packet::FTRACE_STATS | packet::COMPRESSED);
        let others = matches!(number, packet::PROCESS_TREE | packet::CLOCK_SNAPSHOT | packet::TRACE_CONFIG);
        events || others || matches!(number, packet::TIMESTAMP | packet::SEQUENCE | packet::SYNCHRONIZATION_MARKER)
    };
    let mut input = head;
    let mut content = Vec::new();
    for _ in 0..FIRST {
        match next_packet(&mut input, &mut content) {
            Ok(true) => {}
            Ok(false) => return false,
            // The first packet may be larger than `head`. Then the format is recognised by the first field of the packet.
            Err(error) => {
                let key = content.first().map(|key| (u32::from(key >> 3), key & 7));
                let recognised = key.is_some_and(|(number, kind)| is_known(number) && matches!(kind, 0 | 2));
                return error.kind() == ErrorClass::Truncated && head.len() >= 1 << 10 && recognised;
            }
        }
        let mut known = false;
        for field in WireFields::of(&content) {
            let Ok((number, _)) = field else { return false };
            known |= is_known(number);
        }
        if known {
            return true;
        }
    }
    false
}

struct PerfettoSource {
    input: CountingReader<io::BufReader<Box<dyn Read + Send>>>,
    path: std::path::PathBuf,
    name: String,
    meter: Box<dyn Fn() -> ReadProgress + Send>,
    lenient: bool,
    content: Vec<u8>,
    events: PacketHandler,
    ended: bool,
}

impl PerfettoSource {
    fn open(input: DecompressedInput, options: &ReadOptions) -> Self {
        Self {
            path: input.path().to_owned(),
            name: input.name(),
            meter: Box::new(input.meter()),
            lenient: options.lenient,
            input: CountingReader::new(io::BufReader::with_capacity(1 << 16, Box::new(input.into_reader()))),
            content: Vec::new(),
            events: PacketHandler { window: options.reorder_window.unwrap_or(WINDOW).max(1), ..PacketHandler::default() },
            ended: false,
        }
    }

    /// Reads a packet; returns false at the end.
    fn advance(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let at = self.input.at();
        let read = next_packet(&mut self.input, &mut self.content);
        let more = match read {
            Ok(more) => more,
            // After an invalid length, the next packet cannot be located.
            Err(_) if self.lenient => {
                self.events.ledger.skipped += 1;
                false
            }
            Err(error) => return Err(error.at_offset(at).in_file(&self.path)),
        };
        if more {
            match self.events.packet(&self.content, true, out) {
                Err(_) if self.lenient => self.events.ledger.skipped += 1,
                result => result.map_err(|error| error.at_offset(at).in_file(&self.path))?,
            }
        }
        Ok(more)
    }
}

#[derive(Default)]
struct PacketHandler {
    decoder: FtraceDecoder,
    clocks: PerfettoClocks,
    losses: EventLosses,
    tree: ProcessNames,
    merge: CpuStreamMerge<DecodedFtraceEvent>,
    /// Number of events since the last round.
    pushed: usize,
    /// Number of events at which the next round is due.
    window: usize,
    /// Latest time of the events that the matcher has received.
    latest_passed_on: u64,
    matcher: EventMatcher,
    ledger: Ledger,
    processes: NameTable,
    devices: NameTable,
    last_disk: Option<(u32, NameId)>,
    /// Whether a packet with events has been read.
    begun: bool,
    /// Whether the trace has slices, instants or counters (`TrackEvent`).
    has_tracks: bool,
    /// Reused buffer for packets inside packets.
    inner: Vec<u8>,
    returned_requests: u64,
    /// The activity other than requests; known at the end.
    activity: Option<String>,
}

impl PacketHandler {
    /// Handles a `TracePacket`; compressed packets inside it are permitted only if `may_hold`.
    fn packet(&mut self, content: &[u8], may_hold: bool, out: &mut Vec<Request>) -> Result<()> {
        let (mut has_events, mut dropped) = (false, false);
        for field in WireFields::of(content) {
            let (number, value) = field?;
            match number {
                packet::FTRACE_EVENTS => {
                    has_events = true;
                    self.bundle(value.bytes(), out)?;
                }
                packet::PROCESS_TREE => self.tree.tree(value.bytes())?,
                packet::CLOCK_SNAPSHOT => self.clocks.snapshot(value.bytes())?,
                packet::FTRACE_STATS => self.losses.statistics(value.bytes())?,
                packet::PREVIOUS_DROPPED => dropped = value.number() != 0,
                packet::TRACK_EVENT => self.has_tracks = true,
                packet::COMPRESSED if may_hold => self.packets_within(value.bytes(), out)?,
                _ => {}
            }
        }
        if has_events {
            // The first packet of a sequence also has the mark for lost packets, although no packet was before it.
            if dropped && self.begun {
                self.losses.packet();
            }
            self.begun = true;
        }
        Ok(())
    }

    /// Handles packets that are compressed together in one packet.
    fn packets_within(&mut self, packed: &[u8], out: &mut Vec<Request>) -> Result<()> {
        let mut input = io::BufReader::new(flate2::read::ZlibDecoder::new(packed));
        let mut inner = std::mem::take(&mut self.inner);
        let result = loop {
            match next_packet(&mut input, &mut inner) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            if let Err(error) = self.packet(&inner, false, out) {
                break Err(error);
            }
        };
        self.inner = inner;
        result
    }

    fn bundle(&mut self, message: &[u8], out: &mut Vec<Request>) -> Result<()> {
        let (mut cpu, mut clock, mut ftrace, mut boot, mut lost) = (0, 0, None, None, false);
        // Fields that apply to all events of the bundle may come after the events, so they are read first.
        for field in WireFields::of(message) {
            let (number, value) = field?;
            match number {
                bundle::CPU => cpu = value.number(),
                bundle::LOST_EVENTS => lost = value.number() != 0,
                bundle::COMPACT_SCHED => {
                    let count = self.decoder.compact(value.bytes())?;
                    self.ledger.seen += count;
                    self.ledger.skipped += count;
                }
                bundle::CLOCK => clock = value.number(),
                bundle::FTRACE_TIME => ftrace = Some(value.number() as i64),
                bundle::BOOT_TIME => boot = Some(value.number() as i64),
                bundle::GENERIC_DESCRIPTION => self.decoder.describe(value.bytes())?,
                _ => {}
            }
        }
        if lost {
            self.losses.before_bundle(cpu);
        }
        let shift = self.clocks.shift(clock, ftrace, boot);
        for field in WireFields::of(message) {
            let (bundle::EVENT, event) = field? else { continue };
            self.ledger.seen += 1;
            match self.decoder.decode(event.bytes())? {
                Some((time, event)) => {
                    self.merge.push(self.in_window(clock::moved(time, shift)?)?, event);
                    self.pushed += 1;
                    if self.pushed >= self.window {
                        self.pushed = 0;
                        self.end_round(out);
                    }
                }
                None => self.ledger.skipped += 1,
            }
        }
        Ok(())
    }

    /// Returns the time of an event. Fails if the time is earlier than that of an event which the matcher has already received.
    #[inline]
    fn in_window(&self, time: u64) -> Result<u64> {
        if time >= self.latest_passed_on {
            return Ok(time);
        }
        let behind = Nanos((self.latest_passed_on - time) as i64);
        Err(Error::new(
            ErrorClass::Order,
            format!("an event comes more than {} events after its place in the order of time", self.window),
        )
        .of_field("timestamp", 0, format!("{behind} before its predecessor").as_bytes())
        .hint(format!(
            "the CPUs' buffers were read far apart: give a larger reorder_window (now {}), or record with a shorter \
                 drain_period_ms",
            self.window
        )))
    }

    fn end_round(&mut self, out: &mut Vec<Request>) {
        let mut merge = std::mem::take(&mut self.merge);
        for (time, event) in merge.end_round() {
            self.latest_passed_on = time;
            self.event(time, &event, out);
        }
        self.merge = merge;
    }

    fn finish(&mut self, out: &mut Vec<Request>) -> Result<()> {
        let mut merge = std::mem::take(&mut self.merge);
        for (time, event) in merge.finish() {
            self.event(time, &event, out);
        }
        self.matcher.finish(&mut self.devices, &mut self.ledger, out);
        self.activity = self.matcher.activity(|pid| self.tree.process_name(pid)).to_json();
        if self.has_tracks && !self.begun {
            return Err(Error::new(
                ErrorClass::Unsupported,
                "the trace contains only slices and counters, which are for display, and no kernel events",
            )
            .hint("read the trace from which this file was created, or record a trace with ftrace block events"));
        }
        Ok(())
    }

    fn event(&mut self, time: u64, event: &DecodedFtraceEvent, out: &mut Vec<Request>) {
        let time = Nanos(time as i64);
        match &event.kind {
            DecodedEventKind::Block(block) => {
                let device = self.disk(block.device);
                let process =
                    if block.kind.is_by_submitter() { self.tree.name(event.pid, event.task, &mut self.processes) } else { None };
                let step = BlockLayerEvent {
                    time,
                    kind: block.kind,
                    device,
                    op: block.op,
                    flags: block.flags,
                    sector: block.sector,
                    sectors: block.sectors,
                    pid: Some(event.pid),
                    process,
                    error: block.error,
                    zeroes: block.zeroes,
                };
                let task = unfilled(&event.task);
                if block.accounted {
                    self.matcher.accounted(step, task, &mut self.ledger, out);
                } else {
                    self.matcher.block(step, task, &mut self.ledger, out);
                }
            }
            DecodedEventKind::Zone(command, kind) => {
                self.matcher.zone(*command, *kind);
                self.ledger.skipped += 1;
            }
            DecodedEventKind::Beside(DecodedEvent::Command(command)) => {
                self.matcher.command(time, command, None, &mut self.devices, &mut self.ledger, out);
            }
            DecodedEventKind::Beside(DecodedEvent::File(event)) => {
                let process = self.tree.process_name(event.pid);
                self.matcher.file_system(time, event, &dev_t_label(event.device), process.as_deref());
            }
        }
    }

    #[inline]
    fn disk(&mut self, device: u32) -> NameId {
        match self.last_disk {
            Some((last, id)) if last == device => id,
            _ => {
                let id = self.devices.intern(&dev_t_label(device));
                self.last_disk = Some((device, id));
                self.matcher.add_disk(id, device >> 20);
                id
            }
        }
    }
}

impl TraceSource for PerfettoSource {
    fn in_file_order(&self) -> bool {
        false
    }

    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let (before, goal) = (out.len(), out.len() + BATCH_ROWS);
        while !self.ended && out.len() < goal {
            if !self.advance(out)? {
                self.ended = true;
                self.events.finish(out).map_err(|error| error.in_file(&self.path))?;
            }
        }
        self.events.returned_requests += (out.len() - before) as u64;
        Ok(!self.ended)
    }

    fn names(&self) -> (&NameTable, &NameTable) {
        (&self.events.processes, &self.events.devices)
    }

    fn ledger(&self) -> Ledger {
        Ledger { lost: self.events.losses.total(), ..self.events.ledger.clone() }
    }

    fn header(&self) -> TraceHeader {
        let at_zero = self.events.clocks.unix_at_zero();
        let at_zero = at_zero.map(|time| format!("time 0 is {} s of Unix time", seconds(time)));
        let note: Vec<_> = at_zero.into_iter().chain(self.events.losses.note()).chain(self.events.matcher.note()).collect();
        TraceHeader {
            source: self.name.clone(),
            format: FORMAT.name.into(),
            clock: "monotonic".into(),
            note: (!note.is_empty()).then(|| note.join("; ")),
            activity: self.events.activity.clone(),
            ..TraceHeader::default()
        }
    }

    fn tally(&self) -> EventTally {
        let mut tally = self.events.decoder.tally();
        tally.packets = self.events.matcher.packets();
        tally
    }

    fn progress(&self) -> ReadProgress {
        (self.meter)()
    }
}

fn seconds(time: Nanos) -> String {
    let (whole, rest) = (time.0.div_euclid(1_000_000_000), time.0.rem_euclid(1_000_000_000));
    format!("{whole}.{rest:09}")
}
