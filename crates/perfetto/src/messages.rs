//! The messages of a trace, with the fields that are written. Source: `protos/perfetto/trace/**/*.proto` of Perfetto.

use prost::{Message, Oneof};

/// The key of `Trace.packet`: field 1, length-delimited.
pub(crate) const PACKET: u8 = 1 << 3 | 2;

/// Flag in `TracePacket.SequenceFlags`: the state of the sequence, such as interned names, is cleared before this packet.
pub(crate) const STATE_CLEARED: u32 = 1;
/// Flag in `TracePacket.SequenceFlags`: the packet uses the state of the sequence.
pub(crate) const NEEDS_STATE: u32 = 2;

/// Value of Perfetto's `BuiltinClock` for the default clock.
pub(crate) const BOOT: u32 = 6;
/// Value of Perfetto's `BuiltinClock` for the clock of Unix times.
pub(crate) const REALTIME: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
    #[prost(bool, optional, tag = "87")]
    pub first_packet_on_sequence: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<ClockReading>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ClockReading {
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum TrackEventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "TrackEventType", optional, tag = "9")]
    pub r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    #[prost(oneof = "CounterValue", tags = "30, 44")]
    pub counter: Option<CounterValue>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum CounterValue {
    #[prost(int64, tag = "30")]
    Whole(i64),
    #[prost(double, tag = "44")]
    Real(f64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    #[prost(oneof = "AnnotationValue", tags = "3, 4, 6")]
    pub value: Option<AnnotationValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum AnnotationValue {
    #[prost(uint64, tag = "3")]
    Uint(u64),
    #[prost(int64, tag = "4")]
    Int(i64),
    #[prost(string, tag = "6")]
    Text(String),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub event_categories: Vec<InternedName>,
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<InternedName>,
}

/// `EventCategory`, `EventName` and `DebugAnnotationName`, which have the same fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedName {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// Value of `TrackDescriptor.ChildTracksOrdering`: child tracks are ordered by `sibling_order_rank`.
pub(crate) const EXPLICIT: i32 = 3;
/// Value of `TrackDescriptor.SiblingMergeBehavior`: the track is not merged with others.
pub(crate) const MERGE_NONE: i32 = 2;
/// Value of `TrackDescriptor.SiblingMergeBehavior`: tracks with the same merge key are shown as one track.
pub(crate) const MERGE_BY_KEY: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    pub sibling_order_rank: Option<i32>,
    #[prost(int32, optional, tag = "15")]
    pub sibling_merge_behavior: Option<i32>,
    #[prost(uint64, optional, tag = "17")]
    pub sibling_merge_key_int: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}
