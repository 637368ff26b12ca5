//! Ftrace events of a Perfetto trace: which fields hold what. Source: `protos/perfetto/trace/ftrace/*.proto` of Perfetto
//! (`FtraceEvent`, `Block*FtraceEvent`, `GenericFtraceEvent`, `GenericEventDescriptor`).
//!
//! Events that Perfetto knows have messages of their own. Others (`mmc_request_start`, `block_rq_merge`) come with the
//! names of their fields, in each event or, since Perfetto 50, in a description that stands before them.

use std::collections::HashMap;

use Slot::{
    Bytes, Device, Host, Letters, Opcode, Result as Returned, SecondSector, Sector, Sectors, Step, Tag, Task,
    Word,
};

use emmclab_base::{Flags, Op, Result};

use super::wire::{Fields, Value};
use crate::events::{DecodedEvent, KernelEvent, Slot, Values};
use crate::formats::rwbs;
use crate::names::fixed;
use crate::pairing::EventKind;

/// The events that are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    Block(EventKind),
    Beside(KernelEvent),
    /// `block_io_start` and `block_io_done`, which report neither merges nor lengths.
    Accounting,
}

impl Kernel {
    fn by_name(name: &[u8]) -> Option<Kernel> {
        match name {
            b"block_io_start" | b"block_io_done" => Some(Kernel::Accounting),
            name => {
                let beside = || KernelEvent::by_name(name).map(Kernel::Beside);
                EventKind::of_event(name).map(Kernel::Block).or_else(beside)
            }
        }
    }
}

/// Field numbers of an event.
#[derive(Clone, Debug)]
struct Layout {
    event: Kernel,
    fields: Vec<(u32, Slot)>,
}

/// Numbers of fields in the message of an event, and what they hold.
type Slots = &'static [(u32, Slot)];

const SHORT: Slots = &[(1, Device), (2, Sector), (3, Sectors), (4, Letters), (5, Task)];
const LONG: Slots = &[(1, Device), (2, Sector), (3, Sectors), (5, Letters), (6, Task)];
const ENDED: Slots = &[(1, Device), (2, Sector), (3, Sectors), (5, Letters)];
const SPLIT: Slots = &[(1, Device), (2, Sector), (3, SecondSector), (4, Letters), (5, Task)];

const SYNC: Slots = &[(1, Device)];
const EXT4_END: Slots = &[(1, Device), (3, Returned)];
const F2FS_END: Slots = &[(1, Device), (5, Returned)];
const UFS: Slots = &[(1, Host), (5, Opcode), (6, Word), (7, Tag), (8, Bytes), (10, Step)];

/// The events with a message of their own: number of the field in `FtraceEvent`, event, fields.
const KNOWN: [(u32, Kernel, Slots); 16] = [
    (43, Kernel::Beside(KernelEvent::SyncBegin("ext4")), SYNC),
    (44, Kernel::Beside(KernelEvent::SyncEnd("ext4")), EXT4_END),
    (45, Kernel::Block(EventKind::Issue), LONG),
    (115, Kernel::Block(EventKind::BackMerge), SHORT),
    (118, Kernel::Block(EventKind::FrontMerge), SHORT),
    (119, Kernel::Block(EventKind::Queue), SHORT),
    (122, Kernel::Block(EventKind::GetRequest), SHORT),
    (125, Kernel::Block(EventKind::Complete), ENDED),
    (126, Kernel::Block(EventKind::Insert), LONG),
    (129, Kernel::Block(EventKind::Requeue), ENDED),
    (131, Kernel::Block(EventKind::Split(0)), SPLIT),
    (255, Kernel::Beside(KernelEvent::SyncBegin("f2fs")), SYNC),
    (256, Kernel::Beside(KernelEvent::SyncEnd("f2fs")), F2FS_END),
    (406, Kernel::Beside(KernelEvent::Ufs), UFS),
    (546, Kernel::Accounting, &[]),
    (547, Kernel::Accounting, &[]),
];

/// Fields of `FtraceEvent`.
const TIMESTAMP: u32 = 1;
const PID: u32 = 2;
const GENERIC: u32 = 327;

/// More descriptions than a kernel has events are nonsense.
const MOST_DESCRIBED: usize = 1 << 14;

/// An event of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) pid: i32,
    /// Name of the task, filled with zeros; empty where the event has none.
    pub(super) task: [u8; 16],
    pub(super) what: What,
}

/// The kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Block(Block),
    Beside(DecodedEvent),
}

/// An event of the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) kind: EventKind,
    /// As the kernel's `dev_t`.
    pub(super) device: u32,
    pub(super) op: Op,
    pub(super) flags: Flags,
    pub(super) sector: u64,
    pub(super) sectors: u32,
}

/// The kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// An event at this time on the clock of its bundle.
    Event(u64, Found),
    /// `block_io_start` or `block_io_done`.
    Accounting,
    /// An event that is of no use here.
    Other,
}

/// Fields below this number are Perfetto's own events.
const OWN_FIELDS: usize = 1 << 10;

/// Decodes events.
#[derive(Debug)]
pub(super) struct Decoder {
    /// By number of the field in `FtraceEvent`, for Perfetto's own events.
    own: Vec<Option<Layout>>,
    /// As described in the trace.
    described: HashMap<u32, Layout>,
}

impl Default for Decoder {
    fn default() -> Self {
        let mut own = vec![None; OWN_FIELDS];
        for (number, event, fields) in KNOWN {
            own[number as usize] = Some(Layout { event, fields: fields.to_vec() });
        }
        Self { own, described: HashMap::new() }
    }
}

/// Notes the value of a field.
#[inline]
fn set<'a>(values: &mut Values<'a>, slot: Slot, value: Value<'a>) {
    if slot.is_text() {
        values.set_text(slot, value.bytes());
    } else if slot == Device {
        values.set(slot, i64::from(dev_t(value.number())));
    } else {
        values.set(slot, value.number() as i64);
    }
}

/// The event; `None` for commands that pass through the block layer, and where fields are missing.
fn found(values: &Values, event: Kernel, pid: i32) -> Option<Found> {
    let what = match event {
        Kernel::Block(kind) => {
            let (op, flags) = rwbs::parse(values.text(Letters), 0).ok()?;
            let kind = match kind {
                EventKind::Split(_) => EventKind::Split(values.number(SecondSector) as u64),
                kind => kind,
            };
            What::Block(Block {
                kind,
                device: values.number(Device) as u32,
                op,
                flags,
                sector: values.number(Sector) as u64,
                sectors: u32::try_from(values.number(Sectors)).ok()?,
            })
        }
        Kernel::Beside(event) => What::Beside(DecodedEvent::read(event, pid, values)?),
        Kernel::Accounting => return None,
    };
    Some(Found { pid, task: fixed(values.text(Task)), what })
}

/// The kernel's `dev_t`: Perfetto stores devices as C libraries do (`makedev`).
fn dev_t(device: u64) -> u32 {
    let major = device >> 8 & 0xfff;
    let minor = (device & 0xff) | (device >> 12 & 0xf_ff00);
    (major << 20 | minor) as u32
}

impl Decoder {
    /// Takes the description of an event that Perfetto does not know (`GenericEventDescriptor`): a field of `FtraceEvent`
    /// and the message in it, as `google.protobuf.DescriptorProto` says it.
    pub(super) fn describe(&mut self, description: &[u8]) -> Result<()> {
        let (mut number, mut message) = (0, &[][..]);
        for field in Fields::of(description) {
            match field? {
                (1, value) => number = value.number(),
                (2, value) => message = value.bytes(),
                _ => {}
            }
        }
        let (mut event, mut fields) = (None, Vec::new());
        for field in Fields::of(message) {
            match field? {
                (1, name) => event = Kernel::by_name(name.bytes()),
                (2, field) => fields.extend(described_field(field.bytes())?),
                _ => {}
            }
        }
        if let (Some(event), Ok(number)) = (event, u32::try_from(number))
            && number as usize >= OWN_FIELDS
            && self.described.len() < MOST_DESCRIBED
        {
            self.described.insert(number, Layout { event, fields });
        }
        Ok(())
    }

    #[inline]
    fn layout(&self, number: u32) -> Option<&Layout> {
        match self.own.get(number as usize) {
            Some(layout) => layout.as_ref(),
            None => self.described.get(&number),
        }
    }

    /// Decodes an `FtraceEvent`.
    #[inline]
    pub(super) fn decode(&self, message: &[u8]) -> Result<Seen> {
        let (mut time, mut pid, mut known, mut generic) = (0, 0, None, None);
        for field in Fields::of(message) {
            let (number, value) = field?;
            match number {
                TIMESTAMP => time = value.number(),
                PID => pid = value.number() as i32,
                GENERIC => generic = Some(value.bytes()),
                number => {
                    if let Some(layout) = self.layout(number) {
                        known = Some((layout, value.bytes()));
                    }
                }
            }
        }
        let mut values;
        let event = if let Some((layout, message)) = known {
            values = Values::default();
            for field in Fields::of(message) {
                let (number, value) = field?;
                if let Some((_, slot)) = layout.fields.iter().find(|(known, _)| *known == number) {
                    set(&mut values, *slot, value);
                }
            }
            layout.event
        } else {
            let Some(message) = generic else { return Ok(Seen::Other) };
            values = Values::default();
            let Some(event) = generic_event(message, &mut values)? else { return Ok(Seen::Other) };
            event
        };
        if event == Kernel::Accounting {
            return Ok(Seen::Accounting);
        }
        Ok(found(&values, event, pid).map_or(Seen::Other, |found| Seen::Event(time, found)))
    }
}

/// Number and meaning of a field (`google.protobuf.FieldDescriptorProto`).
fn described_field(field: &[u8]) -> Result<Option<(u32, Slot)>> {
    let (mut slot, mut number) = (None, 0);
    for part in Fields::of(field) {
        match part? {
            (1, name) => slot = Slot::by_name(name.bytes()),
            (3, value) => number = value.number(),
            _ => {}
        }
    }
    Ok(slot.zip(u32::try_from(number).ok()).map(|(slot, number)| (number, slot)))
}

/// Reads a `GenericFtraceEvent`, which names its fields.
fn generic_event<'a>(message: &'a [u8], values: &mut Values<'a>) -> Result<Option<Kernel>> {
    let mut event = None;
    for field in Fields::of(message) {
        match field? {
            (1, name) => {
                event = Kernel::by_name(name.bytes());
                if event.is_none() {
                    return Ok(None);
                }
            }
            (2, field) => {
                let (mut slot, mut value) = (None, None);
                for part in Fields::of(field.bytes()) {
                    match part? {
                        (1, name) => slot = Slot::by_name(name.bytes()),
                        (3..=5, given) => value = Some(given),
                        _ => {}
                    }
                }
                if let (Some(slot), Some(value)) = (slot, value) {
                    set(values, slot, value);
                }
            }
            _ => {}
        }
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_stored_as_by_makedev() {
        assert_eq!(dev_t(0xb300), 179 << 20);
        assert_eq!(dev_t(0x10_0805), 8 << 20 | 0x105);
        // makedev(0xabc, 0x12345)
        assert_eq!(dev_t(0x123a_bc45), 0xabc << 20 | 0x1_2345);
    }
}
