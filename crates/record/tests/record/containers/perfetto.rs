//! Writes the events of raw pages as Perfetto does: those that it knows in messages of their own, others with the names
//! of their fields.

use std::collections::BTreeMap;

use emmclab_record::{EventFormat, EventFormatField, Files, KernelByteOrder, KernelFormat};
use emmclab_testing::ProtobufMessage as Message;

use super::trace_dat::PAGE;

type Fields = &'static [(&'static str, u32)];

const SHORT: Fields = &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("rwbs", 4), ("comm", 5)];
const LONG: Fields = &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("bytes", 4), ("rwbs", 5), ("comm", 6)];
const ENDED: Fields = &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("error", 4), ("rwbs", 5)];

/// Number in `FtraceEvent` and fields, by `ftrace_event.proto` and those of its events.
const OWN: [(&str, u32, Fields); 13] = [
    ("ext4_sync_file_enter", 43, &[("dev", 1), ("ino", 2), ("parent", 3), ("datasync", 4)]),
    ("ext4_sync_file_exit", 44, &[("dev", 1), ("ino", 2), ("ret", 3)]),
    ("block_rq_issue", 45, LONG),
    ("block_bio_backmerge", 115, SHORT),
    ("block_bio_frontmerge", 118, SHORT),
    ("block_bio_queue", 119, SHORT),
    ("block_rq_complete", 125, ENDED),
    ("block_rq_insert", 126, LONG),
    ("block_rq_requeue", 129, ENDED),
    ("block_split", 131, &[("dev", 1), ("sector", 2), ("new_sector", 3), ("rwbs", 4), ("comm", 5)]),
    ("f2fs_sync_file_enter", 255, &[("dev", 1), ("ino", 2), ("size", 5), ("blocks", 7)]),
    ("f2fs_sync_file_exit", 256, &[("dev", 1), ("ino", 2), ("datasync", 4), ("ret", 5), ("cp_reason", 6)]),
    (
        "ufshcd_command",
        406,
        &[("dev_name", 1), ("opcode", 5), ("str", 6), ("tag", 7), ("transfer_len", 8), ("str_t", 10)],
    ),
];

/// How events that Perfetto does not know are written.
#[derive(Clone, Copy, PartialEq)]
pub enum Unknown {
    /// With the names of their fields in each.
    Named,
    /// By a description that stands in front (since Perfetto 50).
    Described,
}

/// Fields below this number are Perfetto's own events.
const FIRST_DESCRIBED: u32 = 65_536;

enum Value {
    Number(u64),
    Text(Vec<u8>),
}

fn value(field: &EventFormatField, record: &[u8]) -> Option<Value> {
    let order = KernelByteOrder::Little;
    if field.is_text() {
        return Some(Value::Text(field.text(order, record)?.to_vec()));
    }
    let number = field.number(order, record)? as u64;
    // As `makedev` of C libraries.
    let device = (number >> 20) << 8 | (number & 0xff) | (number & 0xfff00) << 12;
    Some(Value::Number(if field.name == "dev" { device } else { number }))
}

fn event(format: &EventFormat, unknown: Unknown, time: u64, record: &[u8]) -> Message {
    let fields = || format.fields().filter(|field| !field.name.starts_with("common_"));
    let order = KernelByteOrder::Little;
    let pid = format.field("common_pid").unwrap().number(order, record).unwrap();
    let head = Message::default().number(1, time).number(2, pid as u64);
    let put = |message: Message, number, value| match value {
        Value::Number(value) => message.number(number, value),
        Value::Text(text) => message.bytes(number, text),
    };
    if let Some((_, number, known)) = OWN.iter().find(|(name, ..)| *name == format.name) {
        let message = known.iter().fold(Message::default(), |message, (name, number)| {
            let value = format.field(name).and_then(|field| value(field, record));
            value.map_or(message.clone(), |value| put(message, *number, value))
        });
        return head.bytes(*number, message);
    }
    if unknown == Unknown::Described {
        let message = (1..).zip(fields()).fold(Message::default(), |message, (number, field)| {
            value(field, record).map_or(message.clone(), |value| put(message, number, value))
        });
        return head.bytes(FIRST_DESCRIBED + u32::from(format.id), message);
    }
    let message = fields().fold(Message::default().bytes(1, &format.name), |message, field| {
        let named = Message::default().bytes(1, &field.name);
        match value(field, record) {
            Some(Value::Text(text)) => message.bytes(2, named.bytes(3, text)),
            Some(Value::Number(value)) => message.bytes(2, named.number(if field.signed { 4 } else { 5 }, value)),
            None => message,
        }
    });
    head.bytes(327, message)
}

/// A `GenericEventDescriptor`.
fn description(format: &EventFormat) -> Message {
    let fields = (1..).zip(format.fields().filter(|field| !field.name.starts_with("common_")));
    let message = fields.fold(Message::default().bytes(1, &format.name), |message, (number, field)| {
        message.bytes(2, Message::default().bytes(1, &field.name).number(3, number))
    });
    Message::default().number(1, u64::from(FIRST_DESCRIBED) + u64::from(format.id)).bytes(2, message)
}

/// The pages of all CPUs in a trace, a bundle of each CPU for each round of `period` events.
pub fn trace(files: &Files, cpus: &[Vec<u8>], unknown: Unknown, period: usize) -> Vec<u8> {
    let formats: BTreeMap<u16, EventFormat> = files
        .iter()
        .filter(|(name, _)| name.ends_with("/format"))
        .map(|(_, text)| EventFormat::parse(text).unwrap())
        .map(|format| (format.id, format))
        .collect();
    let kernel = KernelFormat::from_files(files).unwrap();
    let mut events = Vec::new();
    for (cpu, pages) in (0u64..).zip(cpus) {
        for page in pages.chunks(PAGE) {
            for record in kernel.layout().open(page).unwrap() {
                let record = record.unwrap();
                let id = u16::from_le_bytes([record.data[0], record.data[1]]);
                events.push((record.time, cpu, event(&formats[&id], unknown, record.time, record.data)));
            }
        }
    }
    events.sort_by_key(|(time, ..)| *time);
    let mut packets = Vec::new();
    let descriptions =
        formats.values().fold(Message::default(), |bundle, format| bundle.bytes(11, description(format)));
    packets.push(descriptions);
    for round in events.chunks(period) {
        for cpu in (0u64..).take(cpus.len()) {
            let of_cpu = round.iter().filter(|(_, at, _)| *at == cpu);
            packets.push(of_cpu.fold(Message::default().number(1, cpu), |bundle, (.., event)| bundle.bytes(2, event)));
        }
    }
    let packet = |bundle: &Message| Message::default().number(10, 2).bytes(1, bundle);
    packets.iter().fold(Message::default(), |trace, bundle| trace.bytes(1, packet(bundle))).0
}
