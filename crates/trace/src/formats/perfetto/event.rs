//! Decodes the ftrace events of a Perfetto trace. Source: `protos/perfetto/trace/ftrace/*.proto` of Perfetto (`FtraceEvent`,
//! `DecodedBlockEvent*FtraceEvent`, `GenericFtraceEvent`, `GenericEventDescriptor`).
//!
//! Events known to Perfetto have their own messages. Other events (`mmc_request_start`, `block_rq_merge`) contain the names of
//! their fields; since Perfetto 50, a description before the events contains them instead.

use std::collections::HashMap;

use EventField::{
    Bytes, Channel, CommandError, Device, Group, Host, HostNumber, Lba, Letters, Opcode, Result as Returned, SecondSector,
    Sector, Sectors, Step, Tag, Target, Task, Unit, Word,
};

use super::names::name_of;
use super::wire::{WireFields, WireValue};
use crate::formats::fields::text;
use crate::formats::ftrace::FtraceEventKind;
use crate::{
    BlockEventKind, DecodedEvent, EventField, EventFieldValues, EventTally, KernelEvent, Op, RequestFlags, Result, ZoneCommand,
    diagnosis::NameCounts, fixed, formats::rwbs,
};

/// The kind of an event, and the field numbers in its message.
#[derive(Clone, Debug)]
struct FtraceEventLayout {
    event: FtraceEventKind,
    fields: Vec<(u32, EventField)>,
}

/// Field numbers in the message of an event, with their meanings.
type FieldNumbers = &'static [(u32, EventField)];

const SHORT: FieldNumbers = &[(1, Device), (2, Sector), (3, Sectors), (4, Letters), (5, Task)];
const LONG: FieldNumbers = &[(1, Device), (2, Sector), (3, Sectors), (5, Letters), (6, Task)];
/// The error is field 4 in kernels before 4.13, and field 7 since.
const ENDED: FieldNumbers = &[(1, Device), (2, Sector), (3, Sectors), (4, CommandError), (5, Letters), (7, CommandError)];
const SPLIT: FieldNumbers = &[(1, Device), (2, Sector), (3, SecondSector), (4, Letters), (5, Task)];

const ACCOUNTED: FieldNumbers = &[(1, Device), (2, Sector), (3, Sectors), (6, Letters), (7, Task)];

const SYNC: FieldNumbers = &[(1, Device)];
const EXT4_END: FieldNumbers = &[(1, Device), (3, Returned)];
const F2FS_END: FieldNumbers = &[(1, Device), (5, Returned)];
const UFS: FieldNumbers = &[(1, Host), (4, Lba), (5, Opcode), (6, Word), (7, Tag), (8, Bytes), (9, Group), (10, Step)];
const SCSI: FieldNumbers = &[(1, HostNumber), (2, Channel), (3, Target), (4, Unit), (6, Opcode), (12, Tag)];

/// The events with their own message: field number in `FtraceEvent`, kind of the event, fields.
const KNOWN: [(u32, FtraceEventKind, FieldNumbers); 18] = [
    (43, FtraceEventKind::Beside(KernelEvent::SyncBegin("ext4")), SYNC),
    (44, FtraceEventKind::Beside(KernelEvent::SyncEnd("ext4")), EXT4_END),
    (45, FtraceEventKind::Block(BlockEventKind::Issue), LONG),
    (115, FtraceEventKind::Block(BlockEventKind::BackMerge), SHORT),
    (118, FtraceEventKind::Block(BlockEventKind::FrontMerge), SHORT),
    (119, FtraceEventKind::Block(BlockEventKind::Queue), SHORT),
    (122, FtraceEventKind::Block(BlockEventKind::GetRequest), SHORT),
    (125, FtraceEventKind::Block(BlockEventKind::Complete), ENDED),
    (126, FtraceEventKind::Block(BlockEventKind::Insert), LONG),
    (129, FtraceEventKind::Block(BlockEventKind::Requeue), ENDED),
    (131, FtraceEventKind::Block(BlockEventKind::Split(0)), SPLIT),
    (255, FtraceEventKind::Beside(KernelEvent::SyncBegin("f2fs")), SYNC),
    (256, FtraceEventKind::Beside(KernelEvent::SyncEnd("f2fs")), F2FS_END),
    (406, FtraceEventKind::Beside(KernelEvent::Ufs), UFS),
    (546, FtraceEventKind::Accounted(BlockEventKind::Insert), ACCOUNTED),
    (547, FtraceEventKind::Accounted(BlockEventKind::Complete), ACCOUNTED),
    (597, FtraceEventKind::Beside(KernelEvent::ScsiRefused), SCSI),
    (598, FtraceEventKind::Beside(KernelEvent::ScsiTimeout), SCSI),
];

/// Fields of `FtraceEvent`.
const TIMESTAMP: u32 = 1;
const PID: u32 = 2;
const GENERIC: u32 = 327;
/// Fields of `FtraceEventBundle.CompactSched`.
const SWITCH_TIMES: u32 = 1;
const WAKING_TIMES: u32 = 7;

/// Maximum number of descriptions; a kernel has fewer events.
const MOST_DESCRIBED: usize = 1 << 14;
/// Maximum length of the name of an event.
const LONGEST_NAME: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodedFtraceEvent {
    pub(super) pid: i32,
    /// Name of the task, padded with zeros; empty if the event has none.
    pub(super) task: [u8; 16],
    pub(super) kind: DecodedEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodedEventKind {
    Block(DecodedBlockEvent),
    Zone(ZoneCommand, BlockEventKind),
    Beside(DecodedEvent),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodedBlockEvent {
    pub(super) kind: BlockEventKind,
    /// The device as the kernel's device number.
    pub(super) device: u32,
    pub(super) op: Op,
    pub(super) flags: RequestFlags,
    pub(super) sector: u64,
    pub(super) sectors: u32,
    /// The error of a completion as a negative number; 0 if there is none.
    pub(super) error: i32,
    /// Whether the request is a write of zeroes.
    pub(super) zeroes: bool,
    /// Whether the event is `block_io_start` or `block_io_done`.
    pub(super) accounted: bool,
}

/// Upper limit of the field numbers of events that have their own message. Events that are described in the trace have larger numbers.
const OWN_FIELDS: usize = 1 << 10;

/// An event without its own message, whose fields the trace describes.
#[derive(Debug)]
struct DescribedEvent {
    name: String,
    layout: Option<FtraceEventLayout>,
    count: u64,
}

/// Decodes events and counts all of them by name.
#[derive(Debug)]
pub(super) struct FtraceDecoder {
    layouts_by_field: Vec<Option<FtraceEventLayout>>,
    own_counts: Vec<u64>,
    /// Events that the trace describes, by field number.
    described: HashMap<u32, DescribedEvent>,
    /// Counts of the events that contain the names of their fields.
    generic: NameCounts<Option<FtraceEventKind>>,
    /// Number of scheduler events (switches and wakeups) in `CompactSched`.
    switches: u64,
    wakings: u64,
}

impl Default for FtraceDecoder {
    fn default() -> Self {
        let mut own = vec![None; OWN_FIELDS];
        for (number, event, fields) in KNOWN {
            own[number as usize] = Some(FtraceEventLayout { event, fields: fields.to_vec() });
        }
        Self {
            layouts_by_field: own,
            own_counts: vec![0; OWN_FIELDS],
            described: HashMap::new(),
            generic: NameCounts::default(),
            switches: 0,
            wakings: 0,
        }
    }
}

#[inline]
fn set<'a>(values: &mut EventFieldValues<'a>, slot: EventField, value: WireValue<'a>) {
    if slot.is_text() {
        values.set_text(slot, value.bytes());
    } else if slot == Device {
        values.set(slot, i64::from(dev_t(value.number())));
    } else {
        values.set(slot, value.number() as i64);
    }
}

/// The event with these values; `None` for pass-through commands, and if fields are missing or invalid.
fn decoded_event(values: &EventFieldValues, event: FtraceEventKind, pid: i32) -> Option<DecodedFtraceEvent> {
    let what = match event {
        FtraceEventKind::Block(kind) | FtraceEventKind::Accounted(kind) => {
            let sectors = u32::try_from(values.number(Sectors)).ok()?;
            let operation = match rwbs::read(values.text(Letters), 0).ok()? {
                rwbs::RwbsMeaning::Request(operation) => operation,
                rwbs::RwbsMeaning::Zone(command) => {
                    return Some(DecodedFtraceEvent { pid, task: fixed(b""), kind: DecodedEventKind::Zone(command, kind) });
                }
            };
            let (op, flags) = operation.of(sectors);
            let error = if kind == BlockEventKind::Complete { values.number(CommandError) as i32 } else { 0 };
            let kind = match kind {
                BlockEventKind::Split(_) => BlockEventKind::Split(values.number(SecondSector) as u64),
                kind => kind,
            };
            DecodedEventKind::Block(DecodedBlockEvent {
                kind,
                device: values.number(Device) as u32,
                op,
                flags,
                sector: values.number(Sector) as u64,
                sectors,
                error: -error.saturating_abs(),
                zeroes: operation.is_zeroes(sectors),
                accounted: matches!(event, FtraceEventKind::Accounted(_)),
            })
        }
        FtraceEventKind::Beside(event) => DecodedEventKind::Beside(DecodedEvent::read(event, pid, values)?),
    };
    Some(DecodedFtraceEvent { pid, task: fixed(values.text(Task)), kind: what })
}

/// The kernel's device number: Perfetto encodes devices as C libraries do (`makedev`).
fn dev_t(device: u64) -> u32 {
    let major = device >> 8 & 0xfff;
    let minor = (device & 0xff) | (device >> 12 & 0xf_ff00);
    (major << 20 | minor) as u32
}

impl FtraceDecoder {
    /// Parses the description of an event without its own message (`GenericEventDescriptor`): its field number in `FtraceEvent`,
    /// and its message as a `google.protobuf.DescriptorProto`.
    pub(super) fn describe(&mut self, description: &[u8]) -> Result<()> {
        let (mut number, mut message) = (0, &[][..]);
        for field in WireFields::of(description) {
            match field? {
                (1, value) => number = value.number(),
                (2, value) => message = value.bytes(),
                _ => {}
            }
        }
        let (mut name, mut fields) = (&[][..], Vec::new());
        for field in WireFields::of(message) {
            match field? {
                (1, value) => name = value.bytes(),
                (2, field) => fields.extend(described_field(field.bytes())?),
                _ => {}
            }
        }
        let Some(number) = u32::try_from(number).ok().filter(|number| *number as usize >= OWN_FIELDS) else {
            return Ok(());
        };
        let layout = FtraceEventKind::by_name(name).map(|event| FtraceEventLayout { event, fields });
        if let Some(known) = self.described.get_mut(&number) {
            known.layout = layout;
        } else if self.described.len() < MOST_DESCRIBED {
            let name = text(&name[..name.len().min(LONGEST_NAME)]).into_owned();
            self.described.insert(number, DescribedEvent { name, layout, count: 0 });
        }
        Ok(())
    }

    /// Counts an event in field `number` and returns its layout; `None` if the event is not used.
    #[inline]
    fn layout(&mut self, number: u32) -> Option<&FtraceEventLayout> {
        if let Some(count) = self.own_counts.get_mut(number as usize) {
            *count += 1;
            return self.layouts_by_field[number as usize].as_ref();
        }
        let described = self.described.get_mut(&number)?;
        described.count += 1;
        described.layout.as_ref()
    }

    /// An event, with its time on the clock of its bundle; `None` if it is not used.
    #[inline]
    pub(super) fn decode(&mut self, message: &[u8]) -> Result<Option<(u64, DecodedFtraceEvent)>> {
        let (mut time, mut pid, mut content) = (0, 0, None);
        for field in WireFields::of(message) {
            match field? {
                (TIMESTAMP, value) => time = value.number(),
                (PID, value) => pid = value.number() as i32,
                // An event is a nested message; common fields are numbers.
                (number, WireValue::Bytes(bytes)) => content = Some((number, bytes)),
                _ => {}
            }
        }
        let Some((number, message)) = content else { return Ok(None) };
        let mut values;
        let event = if number == GENERIC {
            values = EventFieldValues::default();
            let Some(event) = self.generic_event(message, &mut values)? else { return Ok(None) };
            event
        } else {
            let Some(layout) = self.layout(number) else { return Ok(None) };
            values = EventFieldValues::default();
            for field in WireFields::of(message) {
                let (number, value) = field?;
                if let Some((_, slot)) = layout.fields.iter().find(|(known, _)| *known == number) {
                    set(&mut values, *slot, value);
                }
            }
            layout.event
        };
        Ok(decoded_event(&values, event, pid).map(|decoded| (time, decoded)))
    }

    /// Parses a `GenericFtraceEvent`, which contains the names of its fields; `None` if the event is not used.
    fn generic_event<'a>(&mut self, message: &'a [u8], values: &mut EventFieldValues<'a>) -> Result<Option<FtraceEventKind>> {
        let mut event = None;
        for field in WireFields::of(message) {
            match field? {
                (1, name) => {
                    let name = name.bytes();
                    let (place, known) = self.generic.name_index(&name[..name.len().min(LONGEST_NAME)], FtraceEventKind::by_name);
                    self.generic.add(place);
                    event = known;
                    if event.is_none() {
                        return Ok(None);
                    }
                }
                (2, field) => {
                    if let Some((slot, value)) = generic_field(field.bytes())? {
                        set(values, slot, value);
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }

    /// Counts the scheduler events in a `CompactSched` message, and returns their number. The message contains one time for each event, so
    /// the times are counted.
    pub(super) fn compact(&mut self, message: &[u8]) -> Result<u64> {
        let before = self.switches + self.wakings;
        for field in WireFields::of(message) {
            match field? {
                (SWITCH_TIMES, times) => self.switches += packed_numbers(times.bytes()),
                (WAKING_TIMES, times) => self.wakings += packed_numbers(times.bytes()),
                _ => {}
            }
        }
        Ok(self.switches + self.wakings - before)
    }

    pub(super) fn tally(&self) -> EventTally {
        let own = (0..).zip(&self.own_counts).filter(|(_, count)| **count > 0);
        let own = own.map(|(number, count)| match name_of(number) {
            Some(name) => (name.to_owned(), *count),
            None => (format!("event {number} of Perfetto"), *count),
        });
        let described = self.described.values().map(|event| (event.name.clone(), event.count));
        let packed = [("sched_switch", self.switches), ("sched_waking", self.wakings)];
        let packed = packed.map(|(name, count)| (name.to_owned(), count));
        EventTally::new(own.chain(described).chain(self.generic.counts()).chain(packed))
    }
}

/// The number of values in a packed field: the highest bit is 0 only in the last byte of a value.
fn packed_numbers(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte < 0x80)).sum()
}

/// Number and meaning of a field in a `google.protobuf.FieldDescriptorProto`.
fn described_field(field: &[u8]) -> Result<Option<(u32, EventField)>> {
    let (mut slot, mut number) = (None, 0);
    for part in WireFields::of(field) {
        match part? {
            (1, name) => slot = EventField::by_name(name.bytes()),
            (3, value) => number = value.number(),
            _ => {}
        }
    }
    Ok(slot.zip(u32::try_from(number).ok()).map(|(slot, number)| (number, slot)))
}

/// Meaning and value of a field in a `GenericFtraceEvent`.
fn generic_field(field: &[u8]) -> Result<Option<(EventField, WireValue<'_>)>> {
    let (mut slot, mut value) = (None, None);
    for part in WireFields::of(field) {
        match part? {
            (1, name) => slot = EventField::by_name(name.bytes()),
            (3..=5, content) => value = Some(content),
            _ => {}
        }
    }
    Ok(slot.zip(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_stored_as_by_makedev() {
        assert_eq!(dev_t(0xb300), 179 << 20);
        assert_eq!(dev_t(0x10_0805), 8 << 20 | 0x105);
        // The expected value is makedev(0xabc, 0x12345).
        assert_eq!(dev_t(0x123a_bc45), 0xabc << 20 | 0x1_2345);
    }
}
