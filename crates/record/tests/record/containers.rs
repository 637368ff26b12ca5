//! Writes a recording in the file formats of several tools: `trace.dat` in both versions, by the manual pages of trace-cmd; and
//! Perfetto traces, with their own messages for known events and with field names for others.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use emmclab_record::KernelByteOrder::{self, Little};
use emmclab_record::{EventFormat, EventFormatField, Files, HelperFrame, HelperStream, KernelFormat};
use emmclab_testing::ProtobufMessage as Message;

/// A file of the fixtures, decompressed.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()
}

/// A stored stream of the helper: the texts before the pages, the pages of each CPU, the texts after them.
pub fn capture(name: &str) -> (Files, Vec<Vec<u8>>, Files) {
    let bytes = fixture(name);
    let mut stream = HelperStream::new(&bytes[..]);
    let files = stream.texts("ready").unwrap();
    stream.texts("stream").unwrap();
    let mut cpus = vec![Vec::new(); 2];
    loop {
        match stream.frame().unwrap() {
            HelperFrame::Pages { cpu, count } => {
                for _ in 0..count {
                    let mut page = vec![0; PAGE];
                    stream.page(&mut page).unwrap();
                    cpus[cpu].extend(page);
                }
            }
            HelperFrame::Round => {}
            HelperFrame::End => return (files, cpus, stream.texts("end").unwrap()),
        }
    }
}

pub const PAGE: usize = 4096;

/// The lower `size` bytes of a number.
pub fn number(order: KernelByteOrder, value: u64, size: usize) -> Vec<u8> {
    match order {
        Little => value.to_le_bytes()[..size].to_vec(),
        KernelByteOrder::Big => value.to_be_bytes()[8 - size..].to_vec(),
    }
}

fn text(order: KernelByteOrder, out: &mut Vec<u8>, text: &str) {
    out.extend(number(order, text.len() as u64, 8));
    out.extend(text.as_bytes());
}

fn start(order: KernelByteOrder, version: u8) -> Vec<u8> {
    let mut out = b"\x17\x08\x44tracing".to_vec();
    out.extend([version, 0, u8::from(order == KernelByteOrder::Big), 8]);
    out.extend(number(order, PAGE as u64, 4));
    out
}

fn header_info(order: KernelByteOrder, files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    for name in ["header_page", "header_event"] {
        out.extend(name.as_bytes());
        out.push(0);
        text(order, &mut out, &files[&format!("events/{name}")]);
    }
    out
}

fn event_formats(order: KernelByteOrder, files: &Files) -> Vec<u8> {
    let mut systems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, text) in files {
        if let Some((system, _)) = name.strip_prefix("events/").and_then(|name| name.split_once('/')) {
            systems.entry(system).or_default().push(text);
        }
    }
    let mut out = number(order, systems.len() as u64, 4);
    for (system, events) in systems {
        out.extend(system.as_bytes());
        out.push(0);
        out.extend(number(order, events.len() as u64, 4));
        for format in events {
            text(order, &mut out, format);
        }
    }
    out
}

/// Names of tasks, if the machine provided them.
fn names_of_tasks(order: KernelByteOrder, files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    text(order, &mut out, files.get("saved_cmdlines").map_or("", String::as_str));
    out
}

/// A version 6 file with a main buffer and optionally a named one after it.
pub fn version_6_of(order: KernelByteOrder, files: &Files, main: &[Vec<u8>], instance: Option<&[Vec<u8>]>) -> Vec<u8> {
    let mut out = start(order, b'6');
    out.extend(header_info(order, files));
    out.extend(number(order, 0, 4)); // formats of ftrace's own events
    out.extend(event_formats(order, files));
    out.extend([0; 4 + 4]); // symbols, printk
    out.extend(names_of_tasks(order, files));
    out.extend(number(order, main.len() as u64, 4));
    out.extend(b"options  \0");
    let clock = b"local global [mono] boot\n\0";
    out.extend([number(order, 4, 2), number(order, clock.len() as u64, 4), clock.to_vec()].concat());
    let named_at = out.len() + 6;
    if instance.is_some() {
        out.extend([number(order, 3, 2), number(order, 8 + 5, 4), vec![0; 8], b"disk\0".to_vec()].concat());
    }
    out.extend([0, 0]);
    pages_6(order, &mut out, main);
    if let Some(cpus) = instance {
        let at = out.len() as u64;
        out[named_at..named_at + 8].copy_from_slice(&number(order, at, 8));
        pages_6(order, &mut out, cpus);
    }
    out
}

fn pages_6(order: KernelByteOrder, out: &mut Vec<u8>, cpus: &[Vec<u8>]) {
    out.extend(b"flyrecord\0");
    let mut at = (out.len() + 16 * cpus.len()).next_multiple_of(PAGE);
    for cpu in cpus {
        out.extend(number(order, at as u64, 8));
        out.extend(number(order, cpu.len() as u64, 8));
        at += cpu.len();
    }
    out.resize(out.len().next_multiple_of(PAGE), 0);
    out.extend(cpus.concat());
}

/// Compression of a version 7 file.
#[derive(Clone, Copy, PartialEq)]
pub enum Packing {
    None,
    Zlib,
    Zstd,
}

impl Packing {
    /// Returns a chunk: the compressed size and the size of the data, then the compressed data.
    fn chunk(self, data: &[u8]) -> Vec<u8> {
        let packed = if self == Packing::Zlib {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        } else {
            zstd::encode_all(data, 1).unwrap()
        };
        let sizes = [packed.len(), data.len()];
        sizes.iter().flat_map(|size| number(Little, *size as u64, 4)).chain(packed).collect()
    }

    /// The data in chunks of three pages, after the number of chunks.
    fn chunks(self, data: &[u8]) -> Vec<u8> {
        let pieces: Vec<_> = data.chunks(3 * PAGE).collect();
        let mut out = number(Little, pieces.len() as u64, 4);
        out.extend(pieces.into_iter().flat_map(|piece| self.chunk(piece)));
        out
    }

    pub fn section(self, out: &mut Vec<u8>, id: u16, content: &[u8]) -> u64 {
        let at = out.len() as u64;
        let content = if self == Packing::None { content.to_vec() } else { self.chunk(content) };
        out.extend(id.to_le_bytes());
        out.extend(u16::from(self != Packing::None).to_le_bytes());
        out.extend([0; 4]);
        out.extend((content.len() as u64).to_le_bytes());
        out.extend(content);
        at
    }
}

pub fn version_7_of(packing: Packing, buffers: &[(&str, &[Vec<u8>])], files: &Files) -> Vec<u8> {
    let mut out = start(Little, b'7');
    out.extend(match packing {
        Packing::None => &b"none\0\0"[..],
        Packing::Zlib => b"zlib\x001.2\0",
        Packing::Zstd => b"zstd\x001.5\0",
    });
    let options_at = out.len();
    out.extend([0; 8]);
    let header = packing.section(&mut out, 16, &header_info(Little, files));
    let formats = packing.section(&mut out, 18, &event_formats(Little, files));
    let tasks = packing.section(&mut out, 21, &names_of_tasks(Little, files));
    let sections = [(16u16, header), (18, formats), (21, tasks)];
    let mut all: Vec<_> = sections.map(|(id, at)| (id, at.to_le_bytes().to_vec())).into();
    for (name, cpus) in buffers {
        let mut buffer = [&[0; 8][..], name.as_bytes(), b"\0mono\0"].concat();
        buffer.extend(number(Little, PAGE as u64, 4));
        buffer.extend(number(Little, cpus.len() as u64, 4));
        for (number, cpu) in cpus.iter().enumerate() {
            let data = if packing == Packing::None { cpu.clone() } else { packing.chunks(cpu) };
            buffer.extend((number as u32).to_le_bytes());
            buffer.extend((out.len() as u64).to_le_bytes());
            buffer.extend((data.len() as u64).to_le_bytes());
            out.extend(data);
        }
        all.push((3, buffer));
    }
    all.push((0, vec![0; 8]));
    let mut options = Vec::new();
    for (id, data) in all {
        options.extend(id.to_le_bytes());
        options.extend((data.len() as u32).to_le_bytes());
        options.extend(data);
    }
    let at = packing.section(&mut out, 0, &options);
    out[options_at..options_at + 8].copy_from_slice(&at.to_le_bytes());
    out
}

type Fields = &'static [(&'static str, u32)];

const SHORT: Fields = &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("rwbs", 4), ("comm", 5)];
const LONG: Fields = &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("bytes", 4), ("rwbs", 5), ("comm", 6)];
const ENDED: Fields = &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("error", 4), ("rwbs", 5)];

/// Field number in `FtraceEvent` and fields, by `ftrace_event.proto` and the messages of the events.
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
    ("ufshcd_command", 406, &[("dev_name", 1), ("opcode", 5), ("str", 6), ("tag", 7), ("transfer_len", 8), ("str_t", 10)]),
];

/// The encoding of events that Perfetto does not know.
#[derive(Clone, Copy, PartialEq)]
pub enum Unknown {
    /// Each event contains the names of its fields.
    Named,
    /// A description before the events contains the names (since Perfetto 50).
    Described,
}

/// Smaller field numbers are Perfetto's own events.
const FIRST_DESCRIBED: u32 = 65_536;

enum Value {
    Number(u64),
    Text(Vec<u8>),
}

fn value(field: &EventFormatField, record: &[u8]) -> Option<Value> {
    if field.is_text {
        return Some(Value::Text(field.text(Little, record)?.to_vec()));
    }
    let number = field.number(Little, record)? as u64;
    // Encoded like `makedev` of C libraries.
    let device = (number >> 20) << 8 | (number & 0xff) | (number & 0xfff00) << 12;
    Some(Value::Number(if field.name == "dev" { device } else { number }))
}

fn event(format: &EventFormat, unknown: Unknown, time: u64, record: &[u8]) -> Message {
    let fields = || format.fields.iter().filter(|field| !field.name.starts_with("common_"));
    let pid = format.field("common_pid").unwrap().number(Little, record).unwrap();
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
    let fields = (1..).zip(format.fields.iter().filter(|field| !field.name.starts_with("common_")));
    let message = fields.fold(Message::default().bytes(1, &format.name), |message, (number, field)| {
        message.bytes(2, Message::default().bytes(1, &field.name).number(3, number))
    });
    Message::default().number(1, u64::from(FIRST_DESCRIBED) + u64::from(format.id)).bytes(2, message)
}

/// The pages of all CPUs as a trace: for each round of `period` events, a bundle of each CPU.
pub fn perfetto_trace(files: &Files, cpus: &[Vec<u8>], unknown: Unknown, period: usize) -> Vec<u8> {
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
            for record in kernel.layout.open(page).unwrap() {
                let record = record.unwrap();
                let id = u16::from_le_bytes([record.data[0], record.data[1]]);
                events.push((record.time, cpu, event(&formats[&id], unknown, record.time, record.data)));
            }
        }
    }
    events.sort_by_key(|(time, ..)| *time);
    let mut packets = Vec::new();
    let descriptions = formats.values().fold(Message::default(), |bundle, format| bundle.bytes(11, description(format)));
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
