//! Writes packets: descriptions of tracks, begin and end of slices, values of counters.

use std::io::{self, Write};
use std::mem;

use emmclab_base::Nanos;
use prost::Message;
use rustc_hash::FxHashMap;

use crate::messages::{
    AnnotationValue, BOOT, ClockReading, ClockSnapshot, CounterDescriptor, CounterValue, DebugAnnotation, EXPLICIT, InternedData,
    InternedName, MERGE_BY_KEY, MERGE_NONE, NEEDS_STATE, PACKET, ProcessDescriptor, REALTIME, STATE_CLEARED, ThreadDescriptor,
    TracePacket, TrackDescriptor, TrackEvent, TrackEventType,
};

/// Id of the only sequence of packets; 0 would mean none.
const SEQUENCE: u32 = 1;
/// Number of bytes that are buffered before they are written.
const GATHERED: usize = 1 << 16;

/// A track: a row of slices, a counter, or a group of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrackId(pub(crate) u64);

/// A track of values over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterTrack(TrackId);

/// The value of an argument of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentValue<'a> {
    /// A count or an address.
    Count(u64),
    /// A duration in ns.
    Time(Nanos),
    /// A text.
    Text(&'a str),
}

/// An argument of a slice: name and value. Names of times end in `_ns`.
pub type Argument<'a> = (&'static str, ArgumentValue<'a>);

/// Writes tracks. The names of slices, categories and arguments are written once and then referred to by number (interned).
pub struct TrackWriter<W> {
    out: W,
    origin: Nanos,
    /// The packet being built, kept to reuse its memory.
    packet: TracePacket,
    event: TrackEvent,
    interned: InternedData,
    encoded: Vec<u8>,
    /// The last number assigned to a track or row; the viewer sorts the tracks of a parent by these numbers.
    numbered: u64,
    names: InternedNumbers,
    categories: InternedNumbers,
    arguments: InternedNumbers,
}

/// Numbers of interned names, from 1.
#[derive(Default)]
struct InternedNumbers(FxHashMap<&'static str, u64>);

impl InternedNumbers {
    /// The number of a name; a new name is numbered and added to `new`.
    fn of(&mut self, name: &'static str, new: &mut Vec<InternedName>) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(name).or_insert_with(|| {
            new.push(InternedName { iid: Some(next), name: Some(name.to_owned()) });
            next
        })
    }
}

impl<W: Write> TrackWriter<W> {
    /// Starts a trace.
    pub fn new(out: W) -> io::Result<Self> {
        let mut tracks = Self {
            out,
            origin: Nanos::ZERO,
            packet: TracePacket::default(),
            event: TrackEvent::default(),
            interned: InternedData::default(),
            encoded: Vec::with_capacity(GATHERED * 2),
            numbered: 0,
            names: InternedNumbers::default(),
            categories: InternedNumbers::default(),
            arguments: InternedNumbers::default(),
        };
        let first =
            TracePacket { sequence_flags: Some(STATE_CLEARED), first_packet_on_sequence: Some(true), ..TracePacket::default() };
        tracks.packet(first)?;
        Ok(tracks)
    }

    /// Sets the time that the trace shows as 0; by default time 0. Perfetto has no negative times, so everything before this origin is
    /// omitted. Must be called before anything is drawn.
    pub fn set_origin(&mut self, origin: Nanos) {
        self.origin = origin;
    }

    /// Declares that times are Unix times, and that `at` is the time since 1970.
    pub fn unix_clock(&mut self, at: Nanos) -> io::Result<()> {
        let (Some(time), Ok(unix)) = (self.time(at), u64::try_from(at.0)) else { return Ok(()) };
        let clock = |id, time| ClockReading { clock_id: Some(id), timestamp: Some(time) };
        let clocks = vec![clock(BOOT, time), clock(REALTIME, unix)];
        self.packet(TracePacket {
            timestamp: Some(time),
            clock_snapshot: Some(ClockSnapshot { clocks }),
            ..TracePacket::default()
        })
    }

    /// A group of tracks, which are shown in the order in which they were created.
    pub fn group(&mut self, parent: Option<TrackId>, name: &str) -> io::Result<TrackId> {
        let uuid = self.next_number();
        self.describe(TrackDescriptor { name: Some(name.to_owned()), ..child(uuid, parent) })
    }

    /// The track of a process; `pid` must be unique.
    pub fn process(&mut self, pid: i32, name: &str) -> io::Result<TrackId> {
        let uuid = self.next_number();
        let process = ProcessDescriptor { pid: Some(pid), process_name: Some(name.to_owned()) };
        self.describe(TrackDescriptor { process: Some(process), ..child(uuid, None) })
    }

    /// The track of a thread of process `pid`; `tid` must be unique, and is `pid` for the main thread.
    pub fn thread(&mut self, process: TrackId, (pid, tid): (i32, i32), name: &str) -> io::Result<TrackId> {
        let uuid = self.next_number();
        let (pid, tid, thread_name) = (Some(pid), Some(tid.into()), Some(name.to_owned()));
        let thread = ThreadDescriptor { pid, tid, thread_name };
        self.describe(TrackDescriptor { thread: Some(thread), ..child(uuid, Some(process)) })
    }

    /// Creates a counter, whose values are in `unit`.
    pub fn counter(&mut self, parent: TrackId, name: &str, unit: &str) -> io::Result<CounterTrack> {
        let uuid = self.next_number();
        let counter = CounterDescriptor { unit_name: Some(unit.to_owned()) };
        let descriptor = TrackDescriptor {
            name: Some(name.to_owned()),
            counter: Some(counter),
            child_ordering: None,
            ..child(uuid, Some(parent))
        };
        self.describe(descriptor).map(CounterTrack)
    }

    /// Adds a track with the key `row`. The viewer shows all tracks with the same `row` as one track.
    pub(crate) fn lane(&mut self, parent: TrackId, name: &str, row: u64) -> io::Result<TrackId> {
        let uuid = self.next_number();
        self.describe(TrackDescriptor {
            name: Some(name.to_owned()),
            child_ordering: None,
            sibling_order_rank: Some(rank(row)),
            sibling_merge_behavior: Some(MERGE_BY_KEY),
            sibling_merge_key_int: Some(row),
            ..child(uuid, Some(parent))
        })
    }

    /// The number of the next track or row.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// Writes the value of a counter, which is valid from `at` on until the next value.
    pub fn count(&mut self, counter: CounterTrack, at: Nanos, value: i64) -> io::Result<()> {
        self.counted(counter, at, CounterValue::Whole(value))
    }

    /// Writes a value of a counter that is not an integer.
    pub fn measure(&mut self, counter: CounterTrack, at: Nanos, value: f64) -> io::Result<()> {
        self.counted(counter, at, CounterValue::Real(value))
    }

    fn counted(&mut self, CounterTrack(track): CounterTrack, at: Nanos, value: CounterValue) -> io::Result<()> {
        let Some(time) = self.time(at) else { return Ok(()) };
        self.event.counter = Some(value);
        self.event(track, time, TrackEventType::Counter)
    }

    /// Writes the begin of a slice, or an instant.
    pub(crate) fn named(
        &mut self, track: TrackId, at: Nanos, kind: TrackEventType, (name, category): (&'static str, &'static str),
        arguments: &[Argument<'_>],
    ) -> io::Result<()> {
        let Some(time) = self.time(at) else { return Ok(()) };
        self.event.name_iid = Some(self.names.of(name, &mut self.interned.event_names));
        let category = self.categories.of(category, &mut self.interned.event_categories);
        self.event.category_iids.push(category);
        for (name, value) in arguments {
            let name = self.arguments.of(name, &mut self.interned.debug_annotation_names);
            let value = match *value {
                ArgumentValue::Count(count) => AnnotationValue::Uint(count),
                ArgumentValue::Time(time) => AnnotationValue::Int(time.0),
                ArgumentValue::Text(text) => AnnotationValue::Text(text.to_owned()),
            };
            let annotation = DebugAnnotation { name_iid: Some(name), value: Some(value) };
            self.event.debug_annotations.push(annotation);
        }
        self.event(track, time, kind)
    }

    /// Writes the end of a slice.
    pub(crate) fn end(&mut self, track: TrackId, at: Nanos) -> io::Result<()> {
        let Some(time) = self.time(at) else { return Ok(()) };
        self.event(track, time, TrackEventType::SliceEnd)
    }

    /// The earliest time that can be shown.
    pub(crate) fn origin(&self) -> Nanos {
        self.origin
    }

    fn time(&self, at: Nanos) -> Option<u64> {
        at.0.checked_sub(self.origin.0).and_then(|time| u64::try_from(time).ok())
    }

    /// Writes an event, together with the names that it uses for the first time.
    fn event(&mut self, track: TrackId, time: u64, kind: TrackEventType) -> io::Result<()> {
        let mut event = mem::take(&mut self.event);
        event.r#type = Some(kind.into());
        event.track_uuid = Some(track.0);
        let is_new = self.interned != InternedData::default();
        self.packet.timestamp = Some(time);
        self.packet.trusted_packet_sequence_id = Some(SEQUENCE);
        self.packet.sequence_flags = Some(NEEDS_STATE);
        self.packet.interned_data = is_new.then(|| mem::take(&mut self.interned));
        self.packet.track_event = Some(event);
        encode(&self.packet, &mut self.encoded)?;
        if let Some(mut event) = self.packet.track_event.take() {
            event.category_iids.clear();
            event.debug_annotations.clear();
            (event.name_iid, event.counter) = (None, None);
            self.event = event;
        }
        self.write_gathered()
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> io::Result<TrackId> {
        let id = TrackId(descriptor.uuid.unwrap_or_default());
        self.packet(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() })?;
        Ok(id)
    }

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        encode(&packet, &mut self.encoded)?;
        self.write_gathered()
    }

    #[inline]
    fn write_gathered(&mut self) -> io::Result<()> {
        if self.encoded.len() < GATHERED {
            return Ok(());
        }
        let written = self.out.write_all(&self.encoded);
        self.encoded.clear();
        written
    }

    /// Writes the buffered bytes and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&self.encoded)?;
        Ok(self.out)
    }
}

/// The descriptor of a track that shows its children in the order of their ranks and is not merged with others.
fn child(uuid: u64, parent: Option<TrackId>) -> TrackDescriptor {
    TrackDescriptor {
        uuid: Some(uuid),
        parent_uuid: parent.map(|TrackId(parent)| parent),
        child_ordering: Some(EXPLICIT),
        sibling_order_rank: Some(rank(uuid)),
        sibling_merge_behavior: Some(MERGE_NONE),
        ..TrackDescriptor::default()
    }
}

fn rank(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn encode(packet: &TracePacket, out: &mut Vec<u8>) -> io::Result<()> {
    out.push(PACKET);
    packet.encode_length_delimited(out).map_err(io::Error::other)
}
